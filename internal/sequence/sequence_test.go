package sequence_test

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/sequence"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

func build(t testing.TB, name string) attention.Mechanism {
	t.Helper()
	m, err := mechanism.New(name, mechanism.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// part is the part of a problem that a rank has.
func part(c *comm.Comm, whole *attention.Call) (*attention.Call, int, int) {
	lo, hi := sequence.PartRange(int64(whole.K.N), c.Rank(), c.Size())
	i0, i1 := int(lo), int(hi)
	p := *whole
	p.Q, p.K, p.V = whole.Q.Tokens(i0, i1), whole.K.Tokens(i0, i1), whole.V.Tokens(i0, i1)
	return &p, i0, i1
}

func TestPartRangesCoverTheSequence(t *testing.T) {
	for _, n := range []int64{0, 1, 5, 12, 1 << 40} {
		for _, size := range []int{1, 3, 4, 1024} {
			last := int64(0)
			for r := range size {
				lo, hi := sequence.PartRange(n, r, size)
				if lo != last || hi-lo < n/int64(size) || hi-lo > n/int64(size)+1 {
					t.Fatalf("%d tokens, rank %d of %d: %d to %d, after %d", n, r, size, lo, hi, last)
				}
				last = hi
			}
			if last != n {
				t.Fatalf("%d tokens of %d are divided among %d", last, n, size)
			}
		}
	}
}

func like(x tensor.Heads) tensor.Heads {
	return tensor.NewHeads(x.B, x.H, x.N, x.D)
}

// Under mpirun this binary is a rank.
const rankVariable = "FARFIELD_TEST_RANK"
