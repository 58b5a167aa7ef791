package pretrained_test

import (
	"context"
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/pretrained"
)

// A folder becomes vectors of texts. testdata/tiny has random weights.
func Example() {
	m, err := pretrained.Open("testdata/tiny", pretrained.Options{})
	if err != nil {
		log.Fatal(err)
	}
	v, err := m.Embed(context.Background(), []string{"the cat sat on a mat.", "dogs ran in the rain!"}, pretrained.EmbedOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Family(), len(v.Rows), len(v.Rows[0]))
	// Output: bert 2 8
}
