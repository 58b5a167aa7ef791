// Command swap opens a published model of texts with other attention functions in its layers, and
// prints how far its vectors move. go run . DIR names the folder of the model.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"os"

	"github.com/farfield-ml/farfield"
	"github.com/farfield-ml/farfield/model"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: swap DIR")
	}
	swap(os.Args[1])
}

func swap(dir string) {
	own := embed(dir, nil)
	for _, x := range []model.Exchange{
		{Mechanism: "softmax"}, // the model's own
		{Mechanism: "local", Set: map[string]string{"span": "512"}}, // softmax of all keys up to 511 tokens away
		{Mechanism: "local", Set: map[string]string{"span": "2"}},
		{Mechanism: "fastmax", Layers: []int{0}},
	} {
		fmt.Printf("%s %v: cosine %.3f\n", x.Mechanism, x.Set, cosine(own, embed(dir, &x)))
	}
}

// embed returns the vector of a text. Tokenizer, weights and pooling are those of the folder.
func embed(dir string, x *model.Exchange) []float32 {
	var options []farfield.Option
	if x != nil {
		options = append(options, farfield.WithMechanism(*x))
	}
	m, err := farfield.Open(dir, options...)
	if err != nil {
		log.Fatal(err)
	}
	vectors, err := m.Embed(context.Background(), "the cat sat on a mat, and dogs ran in the rain!")
	if err != nil && !errors.Is(err, farfield.ErrTruncated) { // a vector of the beginning will do
		log.Fatal(err)
	}
	return vectors[0]
}

// cosine returns the cosine of the angle between two vectors.
func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	return ab / math.Sqrt(aa*bb)
}
