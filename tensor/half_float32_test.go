//go:build !float64

package tensor_test

import (
	"fmt"

	"github.com/farfield-ml/farfield/tensor"
)

// A model's weights often come in bfloat16.
func ExampleWidenBFloat16() {
	q := tensor.NewHeads(1, 1, 2, 2)
	tensor.WidenBFloat16(q.Data, []uint16{0x3f80, 0xc020, 0x4040, 0x0000})
	fmt.Println(q.Head(0, 0).Row(0), q.Head(0, 0).Row(1))
	// Output: [1 -2.5] [3 0]
}
