package attention

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// keyRows are the prepared keys of a key head, transposed panel by panel, and
// its values.
type keyRows[T tensor.Float] struct {
	bt    []T // [⌈m/panel⌉, da, ldb]
	panel int // keys of a panel; it divides keyBlock
	ldb   int
	v     []T // [m, ldv], zero beyond dv
	ldv   int
}

// keyRows returns the rows of all keys, in scratch memory.
func (u directForm[T]) keyRows() *keyRows[T] {
	x := &u.keys
	*x = keyRows[T]{panel: keyBlock, ldb: scratch.Stride[T](min(u.m, keyBlock)), ldv: scratch.Stride[T](u.dv)}
	x.bt = arena.Take[T](u.ar, (u.m+keyBlock-1)/keyBlock*u.da*x.ldb)
	if u.valuesInPlace() {
		x.v, x.ldv = u.v.Data, u.v.Stride
	} else {
		x.v = arena.Take[T](u.ar, u.m*x.ldv)
	}
	if u.workers > 1 {
		u.keysTogether(u.m, x.fill)
	} else {
		x.fill(u.headTask, 0, u.m)
	}
	return x
}

// fill brings keys j0 ≤ j < j1 of u, and their values, to their place.
func (x *keyRows[T]) fill(u *headTask[T], j0, j1 int) {
	if !u.direct().valuesInPlace() {
		u.copyValues(x.v[j0*x.ldv:], x.ldv, j0, j1)
	}
	x.put(u, 0, j0, j1)
}

// valuesInPlace reports whether the values can be read where they are: they all
// exist, fill whole vectors, and a column of them does not compete for a few
// sets of the first-level cache, which has room for cacheLines of them.
func (u directForm[T]) valuesInPlace() bool {
	const cacheLines = 512
	perRow := u.v.Stride / kernel.Lanes
	return u.mask == nil && u.dv%kernel.Lanes == 0 && u.v.Stride%kernel.Lanes == 0 &&
		u.m*(perRow&-perRow) <= cacheLines
}

// put prepares keys j0 ≤ j < j1 of u, whose keys follow the first at ones in x.
func (x *keyRows[T]) put(u *headTask[T], at, j0, j1 int) {
	keys := u.rows().keySide()
	for j := j0; j < j1; {
		c := (at + j) % x.panel
		n := min(x.panel-c, j1-j)
		u.rows().prepare(x.panelOf(at+j, u.da)[c:], x.ldb, &keys, j, j+n)
		j += n
	}
}

// panelOf returns the transposed keys from the panel on that holds key j.
func (x *keyRows[T]) panelOf(j, da int) []T { return x.bt[j/x.panel*da*x.ldb:] }

// append copies the first n keys and values of from behind tokens of x. Panels
// of both have the same size.
func (x *keyRows[T]) append(tokens int, from *keyRows[T], n, da int) {
	x.grow(da, tokens, tokens+n)
	x.copy(tokens, from, n, da)
}

// copy is append where there is room.
func (x *keyRows[T]) copy(tokens int, from *keyRows[T], n, da int) {
	copy(x.v[tokens*x.ldv:], from.v[:n*x.ldv])
	for j := 0; j < n; {
		to, at := (tokens+j)%x.panel, j%x.panel
		k := min(x.panel-max(to, at), n-j)
		dst, src := x.panelOf(tokens+j, da)[to:], from.panelOf(j, da)[at:]
		for c := range da {
			copy(dst[c*x.ldb:][:k], src[c*x.ldb:])
		}
		j += k
	}
}

// each calls f with the prepared keys of the first tokens in the order that
// snapshots have: blocks of keyBlock keys, in these channel by channel.
func (x *keyRows[T]) each(tokens, da int, f func(x []T)) {
	for j0 := 0; j0 < tokens; j0 += keyBlock {
		j1 := min(j0+keyBlock, tokens)
		for c := range da {
			for j := j0; j < j1; j += x.panel {
				f(x.panelOf(j, da)[c*x.ldb:][:min(x.panel, j1-j)])
			}
		}
	}
}

// grow makes room for keys tokens ≤ j < end.
func (x *keyRows[T]) grow(da, tokens, end int) {
	panels := func(n int) int { return (n + x.panel - 1) / x.panel }
	x.bt = scratch.Grow(x.bt, (panels(end)-panels(tokens))*da*x.ldb)
	x.v = scratch.Grow(x.v, (end-tokens)*x.ldv)
}

// putToken is put for a single token whose key is prepared.
func (x *keyRows[T]) putToken(da, at int, key []T) {
	to := x.panelOf(at, da)[at%x.panel:]
	for c, y := range key[:da] {
		to[c*x.ldb] = y
	}
}

// cachePanel is the number of keys of a panel of the cache. A token reads the
// panels, and then the values, from end to end.
const cachePanel = 64
