package attention

import (
	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/attention/internal/rowscale"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// headTask is one key head of one sequence, with the group of query heads that
// share it. Its results depend on nothing outside it. A goroutine does it alone,
// or several do its tokens together, each with a copy of the task.
type headTask[T tensor.Float] struct {
	t    *kernel.Table[T]
	spec *taskSpec[T]
	ar   *arena.Arena

	workers int         // how many goroutines may do its tokens; 0: one
	noticed *rowNotices // of the call or the state; nil: not wanted

	q, o       []tensor.Mat[T]    // per query head of the group: [n,D], [n,Dv]
	k, v       tensor.Mat[T]      // [m,D], [m,Dv]
	den        [][]T              // per query head: denominators [n], in or out
	sums       []rowscale.Sums[T] // of a band, per query head: sums of weights [n], out; nil: not wanted
	savesDen   bool               // den is wanted as an output
	scale      []T                // per query head
	n, m       int
	d, dv      int
	da         int // width of prepared rows
	causal     bool
	offset     int  // query i sees keys j ≤ i+off, where causal
	pos        int  // rotation of query 0
	isPrepared bool // keys are prepared
	readyQ     bool // queries are prepared
	chunk      int  // tokens of a chunk, at least 1

	mask    []bool // [m] keys that exist; nil: all
	keep    []bool // pairs: keep[i*keepRow+j]; nil: all; direct form only
	keepRow int
	rope    *Rope[T]

	drop    *Drop // nil: none, and the next fields are not used
	place   dropoutCoords
	kh, hkv int // key head, and their number

	// What the forms work in. The walker and the stream have memory of their own,
	// which a task keeps from call to call.
	keys   keyRows[T]
	walker *features.Monomials[T]
	stream chunkScan[T]

	// Of a normalisation over all tokens, else nil.
	stats    []normStats // per query head
	keyStats *normStats

	logG   tensor.Mat[T] // [m,1] decay of the keys; no Data: none
	ages   *logDecays    // of all of them, in the direct form
	places []int         // [n] the last key that each query sees, if its position does not say it

	savedMoments *[]T // what Forward may leave for Backward of the moments; nil: nothing

	// Backward only.
	do, dq   []tensor.Mat[T] // per query head: [n,Dv], [n,D]
	dk, dval tensor.Mat[T]   // [m,D], [m,Dv]
	dparams  [][]T           // gradients of the features' parameters, added to
	adds     bool            // dq, dk and dval are added to; of a band without rotation and dropout
	shares   [][]T           // of a band, per query head: factors of do [n]; none: 1
	dscale   []float64       // per query head: Σ dq'·q' before the scale
	dlogG    tensor.Mat[T]   // [m,1]
	dage     []float64       // [places] gradient of the sums of log_g; nil: not wanted
	dgate    []float64       // [m] what log_g has of the factors with which keys enter; nil: there are none
}

// directForm computes a head task pair by pair, in blocks of queries and keys.
type directForm[T tensor.Float] struct{ *headTask[T] }

// bandForm computes a head task of a sliding window, in tiles of its band.
type bandForm[T tensor.Float] struct{ *headTask[T] }

// linearForm computes a head task through sums of features of its keys.
type linearForm[T tensor.Float] struct{ *headTask[T] }

// preparation makes the rows that a form reads of queries and keys, and takes gradients
// back through them: norms, rotation, scale, dropout, gates and features.
type preparation[T tensor.Float] struct{ *headTask[T] }

// taskDecay has the decays of a head task's keys and queries.
type taskDecay[T tensor.Float] struct{ *headTask[T] }

func (u *headTask[T]) direct() directForm[T] { return directForm[T]{u} }
func (u *headTask[T]) band() bandForm[T]     { return bandForm[T]{u} }
func (u *headTask[T]) linear() linearForm[T] { return linearForm[T]{u} }
func (u *headTask[T]) rows() preparation[T]  { return preparation[T]{u} }
func (u *headTask[T]) decay() taskDecay[T]   { return taskDecay[T]{u} }

// countVisible returns how many keys query i could see by position alone: keys
// 0 ≤ j < seen, before masks.
func (u *headTask[T]) countVisible(i int) int {
	if !u.causal {
		return u.m
	}
	return min(max(i+u.offset+1, 0), u.m)
}

// hasKey reports whether key j takes part.
func (u *headTask[T]) hasKey(j int) bool { return u.mask == nil || u.mask[j] }

// copyValues sets rows of dst (stride ld ≥ Dv) to values j0 ≤ j < j1, zero beyond Dv
// and where the key does not exist.
func (u *headTask[T]) copyValues(dst []T, ld, j0, j1 int) {
	if u.mask == nil && u.v.Stride == ld && u.dv == ld {
		copy(dst[:(j1-j0)*ld], u.v.Data[j0*ld:])
		return
	}
	for j := j0; j < j1; j++ {
		row := dst[(j-j0)*ld:][:ld]
		n := 0
		if u.hasKey(j) {
			n = copy(row, u.v.Data[j*u.v.Stride:][:u.dv])
		}
		clear(row[n:])
	}
}

// queryHeads returns the query heads that share key head kh.
func (u *headTask[T]) queryHeads(kh int) headRange { return headRange{kh * len(u.q), len(u.q)} }

// headRange is a group of query heads.
type headRange struct{ lo, n int }
