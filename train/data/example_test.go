package data_test

import (
	"fmt"

	"github.com/farfield-ml/farfield/train/data"
)

// A specification says whether a sample fits it.
func ExampleSpec_CheckSample() {
	spec := data.Spec{Name: "notes", Kind: data.Class, Metric: data.Accuracy, Vocab: 12, Length: 8, Classes: 2}
	fmt.Println(spec.Check())
	fmt.Println(spec.CheckSample(&data.Sample{Tokens: []int32{0, 4, 7, 12}, Class: 1}))
	// Output:
	// <nil>
	// task notes: tokens: element 3 is 12, needs to be from 0 to 11
}
