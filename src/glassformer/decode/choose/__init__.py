"""From logits to the next token: settings, filters, draws."""
