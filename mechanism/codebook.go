package mechanism

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/kmeans"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

const (
	maxCells  = 1 << 16
	maxLength = 0x1p62 // of a key: the square of twice that is a float32
)

// Codebook returns centres [H,cells,D] for the codebook of multipole: k-means of the keys of each
// head, those of all batch rows together. keys are samples of those that calls will have, without
// padding, rotated if calls have a Rope, and without the tokens that the settings sinks and ends keep
// out of cells.
//
// The mechanism for these centres has Options.KeyHeads H, Width D and the setting cells. Copy the
// centres to the Data of its constant codebook; farfield.Attend takes them in Params, and
// model.Exchange in Numbers.
//
// The centres depend on the keys, cells and seed alone, not on the number of threads. The time is
// O(B·H·N·cells·D). Codebook returns an error, which names the argument and its value, if keys has no
// head or channel, if a key has NaN, an infinity or a length above 2⁶², or if cells is not 1 to 65536
// or exceeds the B·N keys of a head. It returns the error of ctx if that ends.
func Codebook(ctx context.Context, keys tensor.Heads, cells int, seed uint64) ([]tensor.Float, error) {
	if err := keys.Check("keys"); err != nil {
		return nil, err
	}
	n, d := keys.B*keys.N, keys.D
	switch {
	case keys.H == 0 || d == 0:
		return nil, fmt.Errorf("keys: %d heads of width %d, needs 1 or more of each", keys.H, d)
	case cells < 1 || cells > maxCells:
		return nil, fmt.Errorf("cells: %d, needs 1 to %d", cells, maxCells)
	case cells > n:
		return nil, fmt.Errorf("cells: %d, but keys has only %d of a head", cells, n)
	}
	rows := make([][]float32, keys.H)
	for h := range rows {
		rows[h] = make([]float32, 0, n*d)
		for b := range keys.B {
			head := keys.Head(b, h)
			for j := range head.Rows {
				row := head.Row(j)
				if length := math.Sqrt(sumOfProducts(row, row)); !(length <= maxLength) {
					return nil, fmt.Errorf("keys: token %d of head %d of batch row %d has length %v, needs to be at most 2^62", j, h, b, length)
				}
				for _, x := range row {
					rows[h] = append(rows[h], float32(x))
				}
			}
		}
	}
	centres, failed := make([]tensor.Float, keys.H*cells*d), make([]error, keys.H)
	par.RunParts(keys.H, func(h int) {
		list, err := kmeans.Centres(ctx, rows[h], d, cells, rng.New(seed).Fold(uint64(h)))
		failed[h] = err
		for i, x := range list {
			centres[h*cells*d+i] = tensor.Float(x)
		}
	})
	if at := slices.IndexFunc(failed, func(err error) bool { return err != nil }); at >= 0 {
		return nil, failed[at]
	}
	return centres, nil
}
