package headtask

import (
	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/attention/internal/rowscale"
	"github.com/farfield-ml/farfield/attention/internal/spec"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// Task is one key head of one sequence, with the group of query heads that
// share it. Its results depend on nothing outside it. A goroutine does it alone,
// or several do its tokens together, each with a copy of the task.
type Task[T tensor.Float] struct {
	Table *kernel.Table[T]
	Spec  *Spec[T]
	Arena *arena.Arena

	Workers int         // how many goroutines may do its tokens; 0: one
	Noticed *RowNotices // of the call or the state; nil: not wanted

	Q, O               []tensor.Mat[T]    // per query head of the group: [n,D], [n,Dv]
	K, V               tensor.Mat[T]      // [m,D], [m,Dv]
	Den                [][]T              // per query head: denominators [n], in or out
	Sums               []rowscale.Sums[T] // of a band, per query head: sums of weights [n], out; nil: not wanted
	SavesDen           bool               // den is wanted as an output
	Scale              []T                // per query head
	N, M               int
	D, Dv              int
	PreparedWidth      int // width of prepared rows
	Causal             bool
	Offset             int  // query i sees keys j ≤ i+off, where causal
	FirstPosition      int  // rotation of query 0
	HasPreparedKeys    bool // keys are prepared
	HasPreparedQueries bool // queries are prepared
	Chunk              int  // tokens of a chunk, at least 1

	Mask    []bool // [m] keys that exist; nil: all
	Keep    []bool // pairs: keep[i*keepRow+j]; nil: all; direct form only
	KeepRow int
	Rope    *spec.Rope[T]

	Drop              *spec.Drop // nil: none, and the next fields are not used
	Coords            spec.DropCoords
	KeyHead, KeyHeads int // key head, and their number

	// What the forms work in. The walker and the stream have memory of their own,
	// which a task keeps from call to call.
	keys      KeyRows[T]
	Monomials *features.Monomials[T]
	Scan      Scan[T]

	// Of a normalisation over all tokens, else nil.
	Stats    []NormStats // per query head
	KeyStats *NormStats

	LogG   tensor.Mat[T] // [m,1] decay of the keys; no Data: none
	Decays *LogDecays    // of all of them, in the direct form
	places []int         // [n] the last key that each query sees, if its position does not say it

	SavedMoments *[]T // what Forward may leave for Backward of the moments; nil: nothing

	// Backward only.
	DO, DQ   []tensor.Mat[T] // per query head: [n,Dv], [n,D]
	DK, DVal tensor.Mat[T]   // [m,D], [m,Dv]
	DParams  [][]T           // gradients of the features' parameters, added to
	Adds     bool            // dq, dk and dval are added to; of a band without rotation and dropout
	Shares   [][]T           // of a band, per query head: factors of do [n]; none: 1
	DScale   []float64       // per query head: Σ dq'·q' before the scale
	DLogG    tensor.Mat[T]   // [m,1]
	DAge     []float64       // [places] gradient of the sums of log_g; nil: not wanted
	DGate    []float64       // [m] what log_g has of the factors with which keys enter; nil: there are none
}

// directForm computes a head task pair by pair, in blocks of queries and keys.
type directForm[T tensor.Float] struct{ *Task[T] }

// bandForm computes a head task of a sliding window, in tiles of its band.
type bandForm[T tensor.Float] struct{ *Task[T] }

// linearForm computes a head task through sums of features of its keys.
type linearForm[T tensor.Float] struct{ *Task[T] }

// preparation makes the rows that a form reads of queries and keys, and takes gradients
// back through them: norms, rotation, scale, dropout, gates and features.
type preparation[T tensor.Float] struct{ *Task[T] }

// taskDecay has the decays of a head task's keys and queries.
type taskDecay[T tensor.Float] struct{ *Task[T] }

// Direct returns the direct form of the task.
func (u *Task[T]) Direct() directForm[T] { return directForm[T]{u} }

// Band returns the form of a sliding window.
func (u *Task[T]) Band() bandForm[T] { return bandForm[T]{u} }

// Linear returns the linear form of the task.
func (u *Task[T]) Linear() linearForm[T] { return linearForm[T]{u} }

// Rows returns the preparation of the task's rows.
func (u *Task[T]) Rows() preparation[T] { return preparation[T]{u} }

// Decay returns the decays of the task's keys and queries.
func (u *Task[T]) Decay() taskDecay[T] { return taskDecay[T]{u} }

// CountVisible returns how many keys query i could see by position alone: keys
// 0 ≤ j < seen, before masks.
func (u *Task[T]) CountVisible(i int) int {
	if !u.Causal {
		return u.M
	}
	return min(max(i+u.Offset+1, 0), u.M)
}

// HasKey reports whether key j takes part.
func (u *Task[T]) HasKey(j int) bool { return u.Mask == nil || u.Mask[j] }

// CopyValues sets dst [j1-j0, ld], ld ≥ Dv, to values j0 ≤ j < j1, zero beyond Dv
// and where the key does not exist.
func (u *Task[T]) CopyValues(dst []T, ld, j0, j1 int) {
	if u.Mask == nil && u.V.Stride == ld && u.Dv == ld {
		copy(dst[:(j1-j0)*ld], u.V.Data[j0*ld:])
		return
	}
	for j := j0; j < j1; j++ {
		row := dst[(j-j0)*ld:][:ld]
		n := 0
		if u.HasKey(j) {
			n = copy(row, u.V.Data[j*u.V.Stride:][:u.Dv])
		}
		clear(row[n:])
	}
}

// QueryHeads returns the query heads that share key head kh.
func (u *Task[T]) QueryHeads(kh int) HeadRange { return HeadRange{kh * len(u.Q), len(u.Q)} }

// HeadRange is a group of query heads.
type HeadRange struct{ Lo, N int }

// CountWorkers returns how many goroutines may do the tokens of a task, where as many
// tasks have so much work and the call has it all: several only where the task
// is more than a worker's share.
func CountWorkers(units int, work, all float64) int {
	threads := par.Threads()
	if n := float64(units); work <= SplitWork*n || work*float64(threads) <= all*n {
		return 1
	}
	return threads
}

// SplitWork is the least arithmetic of a task that is divided among workers. A single
// worker never waits. Tests set a lower value.
var SplitWork float64 = 1 << 23
