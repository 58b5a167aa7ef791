package kmeans_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/kmeans"
	"github.com/farfield-ml/farfield/rng"
)

func centresOf(t *testing.T, keys []float32, d, cells int, key rng.Key) []float32 {
	t.Helper()
	centres, err := kmeans.Centres(t.Context(), keys, d, cells, key)
	if err != nil {
		t.Fatal(err)
	}
	return centres
}

func TestCentresLieAmongTheirKeys(t *testing.T) {
	key := rng.New(1)
	keys := make([]float32, 300*8)
	for i := range keys {
		keys[i] = float32(key.Normal(uint64(i)))
	}
	last := math.Inf(1)
	for _, cells := range []int{1, 4, 32, 128, 300} {
		centres := centresOf(t, keys, 8, cells, key)
		d := kmeans.RootMeanDistance(keys, centres, 8)
		if !(d < last) {
			t.Errorf("%d cells: the distance is %g, fewer had %g", cells, d, last)
		}
		if last = d; !slices.Equal(centresOf(t, keys, 8, cells, key), centres) {
			t.Errorf("%d cells: made twice, they differ", cells)
		}
	}
	if last > 1e-3 {
		t.Errorf("with a centre for each key the distance is %g", last)
	}
	same := make([]float32, 40) // five equal keys
	if d := kmeans.RootMeanDistance(same, centresOf(t, same, 8, 3, key), 8); d != 0 {
		t.Errorf("equal keys lie %g from their centre", d)
	}
}

func TestCentresEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := kmeans.Centres(ctx, make([]float32, 40), 8, 3, rng.New(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}
