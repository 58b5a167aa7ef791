package nn

import ()
