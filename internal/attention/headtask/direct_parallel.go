package headtask

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/scratch"
)

// The direct form of a task that several workers do together.

// keysTogether calls f for blocks of keys j0 ≤ j < j1, keys of them each.
func (u *Task) keysTogether(keys int, f func(u *Task, j0, j1 int)) {
	u.runParallel(pieces(keys, KeyBlock), 0, func(u *Task, t *tokenGroup) {
		for i := t.nextPiece(); i < t.n; i = t.nextPiece() {
			f(u, i*KeyBlock, min((i+1)*KeyBlock, keys))
		}
	})
}

// attendTogether is attendAs, or for queries that are in place attend.
func (u *Task) attendTogether(all *Task, x *KeyRows, inPlace bool) {
	u.runParallel(pieces(u.N, QueryBlock), 0, func(u *Task, t *tokenGroup) {
		all := *all
		all.Arena = u.Arena
		var a []float
		var lda int
		if !inPlace {
			lda = scratch.Stride[float](min(u.N, QueryBlock))
			a = u.TakeScratch(len(u.Q) * u.PreparedWidth * lda)
		}
		for i := t.nextPiece(); i < t.n; i = t.nextPiece() {
			i0 := (t.n - 1 - i) * QueryBlock // those that see the most keys come first
			n := min(QueryBlock, u.N-i0)
			if !inPlace {
				u.prepareGroup(a, lda, i0, n)
			}
			all.Attend(x, a, lda, i0, n)
		}
	})
}

func (u *Task) directBackwardTogether() {
	lda, ldo := scratch.Stride[float](u.PreparedWidth), scratch.Stride[float](u.Dv)
	keys, values := u.TakeScratch(u.M*lda), u.TakeScratch(u.M*ldo)
	u.keysTogether(u.M, func(u *Task, j0, j1 int) {
		clear(keys[j0*lda : j1*lda])
		u.PrepareK(keys[j0*lda:], lda, j0, j1)
		u.CopyValues(values[j0*ldo:], ldo, j0, j1)
	})
	dkeys, dvalues := u.BackPairs(u, keys, values)
	u.keysTogether(u.M, func(u *Task, j0, j1 int) {
		u.GradK(j0, j1, dkeys[j0*lda:], lda)
		u.SetValuesGrad(dvalues, j0, j1)
	})
}

// backPairsTogether is backPairs. The gradients of a block of keys are added in the
// order of the rows of blocks, so a worker enters a column after all earlier rows have
// left it.
func (u *Task) backPairsTogether(x backRow) {
	rows, places := pieces(u.N, GradQueries), len(x.all.DAge)
	parts, dage := u.scaleParts(rows), arena.TakeZeros[float64](u.Arena, len(u.Q)*places)
	u.runParallel(len(u.Q)*rows, pieces(x.all.M, KeyBlock), func(u *Task, t *tokenGroup) {
		r, all := x, *x.all
		all.Arena = u.Arena
		r.start(u, &all)
		for p := t.nextPiece(); p < t.n; p = t.nextPiece() {
			g, i := p/rows, p%rows
			u.scalePart(parts, i)
			if places > 0 {
				all.DAge = dage[g*places:][:places] // heads have the places in common
			}
			r.run(t, g, i)
		}
	})
	u.sumScale(parts)
	for i, d := range dage {
		x.all.DAge[i%places] += d
	}
}

// rowsBefore returns how many rows of blocks that have a query which could see
// key j come before row i of head g.
func (u *Geometry) rowsBefore(j, g, i int) int {
	first := 0
	if u.Causal {
		first = max(j-u.Offset, 0) / GradQueries
	}
	return g*(pieces(u.N, GradQueries)-first) + i - first
}
