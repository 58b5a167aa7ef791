package pretrained_test

import (
	"context"
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/pretrained"
)

// A folder becomes vectors of texts. testdata/tiny has random weights.
func Example() {
	m, err := pretrained.Open("testdata/tiny")
	if err != nil {
		log.Fatal(err)
	}
	vectors, err := m.Embed(context.Background(), []string{"the cat sat on a mat.", "dogs ran in the rain!"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Family(), len(vectors), len(vectors[0]))
	// Output: bert 2 8
}
