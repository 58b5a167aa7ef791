package headwise

import "github.com/farfield-ml/farfield/tensor"

// float is the element of arrays: see tensor.Float.
type float = tensor.Float
