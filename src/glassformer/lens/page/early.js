/** Asks for what the first screen shows while the modules that show it are still on their way. */

import { opening } from "lens/data.js";

opening().catch(() => {}); // main.js tells of it
