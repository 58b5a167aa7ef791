//go:build !float64

package stream_test

import (
	"context"
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/stream"
)

// Attention of a hundred thousand tokens with each other, with one window at a time in
// memory.
func Example() {
	m, err := mechanism.New("linear", mechanism.Options{})
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := stream.NewSyntheticSource(100_000, 4, 1, 1)
	if err != nil {
		log.Fatal(err)
	}
	r, err := stream.Run(context.Background(), m, tokens, stream.NewDigestOutput(), stream.Options{Memory: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Tokens, r.Planned <= 1<<20)
	// Output: 200000 true
}
