"""What differs between the runs of a study, as typed."""

from glassformer.cli.ablate import read_change


def test_a_change_has_one_setting_or_several_with_commas():
    assert read_change("model.d-ff=64,training.learning-rate=3e-3,model.tie_embeddings=false") == {
        "model.d_ff": 64,
        "training.learning_rate": 3e-3,
        "model.tie_embeddings": False,
    }
    assert read_change("training.broken=no-scale,leaky-mask,model.norm=rms") == {
        "training.broken": "no-scale,leaky-mask",
        "model.norm": "rms",
    }
