package headtask

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
)

// KeyRows holds the prepared keys of a key head, transposed panel by panel, and its values.
type KeyRows struct {
	Bt    []float // [⌈m/panel⌉, da, ldb]
	Panel int     // keys of a panel; divides KeyBlock
	Ldb   int
	V     []float // [m, ldv], zero beyond dv
	Ldv   int
}

// keyRows returns the rows of all keys, in scratch memory.
func (u *Task) keyRows() *KeyRows {
	x := &u.keys
	*x = KeyRows{Panel: KeyBlock, Ldb: scratch.Stride[float](min(u.M, KeyBlock)), Ldv: scratch.Stride[float](u.Dv)}
	x.Bt = arena.Take[float](u.Arena, (u.M+KeyBlock-1)/KeyBlock*u.PreparedWidth*x.Ldb)
	if u.valuesInPlace() {
		x.V, x.Ldv = u.V.Data, u.V.Stride
	} else {
		x.V = arena.Take[float](u.Arena, u.M*x.Ldv)
	}
	if u.Workers > 1 {
		u.keysTogether(u.M, x.fill)
	} else {
		x.fill(u, 0, u.M)
	}
	return x
}

// fill stores keys j0 ≤ j < j1 of u, and their values.
func (x *KeyRows) fill(u *Task, j0, j1 int) {
	if !u.valuesInPlace() {
		u.CopyValues(x.V[j0*x.Ldv:], x.Ldv, j0, j1)
	}
	x.Put(u, 0, j0, j1)
}

// valuesInPlace reports whether the values can be read in place: no key is masked, they fill
// whole vectors, and a column of them fits the first-level cache, of which a stride can leave
// only a few sets usable.
func (u *Geometry) valuesInPlace() bool {
	const cacheLines = 512
	perRow := u.V.Stride / kernel.Lanes
	return u.Mask == nil && u.Dv%kernel.Lanes == 0 && u.V.Stride%kernel.Lanes == 0 &&
		u.M*(perRow&-perRow) <= cacheLines
}

// Put prepares keys j0 ≤ j < j1 of u and stores them in x. Key 0 of u is key at of x.
func (x *KeyRows) Put(u *Task, at, j0, j1 int) {
	keys := u.KeySide()
	for j := j0; j < j1; {
		c := (at + j) % x.Panel
		n := min(x.Panel-c, j1-j)
		u.Prepare(x.PanelOf(at+j, u.PreparedWidth)[c:], x.Ldb, &keys, j, j+n)
		j += n
	}
}

// PanelOf returns the transposed keys from the start of the panel that holds key j.
func (x *KeyRows) PanelOf(j, da int) []float { return x.Bt[j/x.Panel*da*x.Ldb:] }

// Append appends the first n keys and values of from to x, which has the given number of
// tokens. Panels of both have the same size.
func (x *KeyRows) Append(tokens int, from *KeyRows, n, da int) {
	x.Grow(da, tokens, tokens+n)
	x.Copy(tokens, from, n, da)
}

// Copy is Append without Grow, for an x that has room.
func (x *KeyRows) Copy(tokens int, from *KeyRows, n, da int) {
	copy(x.V[tokens*x.Ldv:], from.V[:n*x.Ldv])
	for j := 0; j < n; {
		to, at := (tokens+j)%x.Panel, j%x.Panel
		k := min(x.Panel-max(to, at), n-j)
		dst, src := x.PanelOf(tokens+j, da)[to:], from.PanelOf(j, da)[at:]
		for c := range da {
			copy(dst[c*x.Ldb:][:k], src[c*x.Ldb:])
		}
		j += k
	}
}

// Each calls f with slices of the prepared keys of the first tokens, in the order of a
// snapshot: block by block of KeyBlock keys, and in a block channel by channel.
func (x *KeyRows) Each(tokens, da int, f func(x []float)) {
	for j0 := 0; j0 < tokens; j0 += KeyBlock {
		j1 := min(j0+KeyBlock, tokens)
		for c := range da {
			for j := j0; j < j1; j += x.Panel {
				f(x.PanelOf(j, da)[c*x.Ldb:][:min(x.Panel, j1-j)])
			}
		}
	}
}

// Grow makes room for keys tokens ≤ j < end.
func (x *KeyRows) Grow(da, tokens, end int) {
	panels := func(n int) int { return (n + x.Panel - 1) / x.Panel }
	x.Bt = scratch.Grow(x.Bt, (panels(end)-panels(tokens))*da*x.Ldb)
	x.V = scratch.Grow(x.V, (end-tokens)*x.Ldv)
}

// PutToken stores a prepared key [da] as key at of x.
func (x *KeyRows) PutToken(da, at int, key []float) {
	to := x.PanelOf(at, da)[at%x.Panel:]
	for c, y := range key[:da] {
		to[c*x.Ldb] = y
	}
}

// CachePanel is the number of keys of a panel in a state that keeps all keys. Each step reads
// the panels from end to end, and then the values.
const CachePanel = 64
