package mechanism

import (
	"flag"

	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

var billions = flag.Bool("billions", false, "feed TestStateOfBillionsOfTokensKeepsTheErrorOfOneChunk 2^31 + 17 tokens, more than 32 bits count")

const (
	manyWidth = 4         // of the head, values and all
	manyPiece = 682 * 96  // tokens of a piece
	manyLast  = 17        // rows that are checked
	manyGrain = 1.0 / 256 // of the numbers in tokens
)

// many are tokens of one head, drawn by their positions, and what float64 sums
// of them.
type many struct {
	key  rng.Key
	k, v tensor.Heads
	sum  [15 * (1 + manyWidth)]float64 // products of the row 1, k̂, and those times the value
	abs  [15]float64                   // products of absolute values
}
