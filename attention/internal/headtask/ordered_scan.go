package headtask

import (
	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/tensor"
)

// orderedScan is a sum of moments that a group extends part by part. Members sum parts from
// zero at the same time and add them in turn. One worker does the same operations when
// it adds each part to the sum at once, since Moments.AddTokens sums from zero first.
type orderedScan[T tensor.Float] struct{ sum features.Moments[T] }

// scanPart is what goes into a chain between two sights of the sum.
type scanPart[T tensor.Float] struct {
	add  func(s *Scan[T], i int, m *features.Moments[T]) // adds part i to m
	fade func(s *Scan[T]) T                              // factor of the sum before the last added part; nil: 1
	read func(s *Scan[T], i int, m *features.Moments[T]) // reads in m the sum before the part; nil: the sum is not read
}

// A member of a group sums parts until their moments have chainSums elements. It then
// adds about chainBlock elements of all of them before the next member follows, in
// pieces of chainMove, which stay in the first-level cache.
const (
	chainSums  = 1 << 17
	chainBlock = 1 << 14
	chainMove  = 1 << 10
)

// extend brings parts 0 ≤ i < n into the sum, in order. Functions of p get a
// scan whose task is the member's.
func (c *orderedScan[T]) extend(u *Task[T], n int, p scanPart[T]) {
	count := len(c.sum.S) / c.sum.Stride
	many := min(max(chainSums/len(c.sum.S), 1), 8) // parts of a piece
	rows := max(chainBlock/c.sum.Stride, 1)        // features of a block
	u.runParallel(pieces(n, many), pieces(count, rows), func(u *Task[T], t *tokenGroup) {
		links := make([]scanMember[T], min(many, n))
		for k := range links {
			s := u.memberScan()
			links[k] = scanMember[T]{s: s, own: s.Moments}
		}
		for piece := t.nextPiece(); piece < t.n; piece = t.nextPiece() {
			i0 := piece * many
			links := links[:min(many, n-i0)]
			for k := range links {
				l := &links[k]
				l.own.NonEmpty = false
				p.add(l.s, i0+k, &l.own)
				if l.fade = 1; p.fade != nil {
					l.fade = p.fade(l.s)
				}
			}
			for stage := range t.passed {
				t.waitForTurn(stage, piece)
				for k := 0; k < len(links) && stage == 0; k++ {
					links[k].hasPast = c.sum.NonEmpty
					c.sum.NonEmpty = c.sum.NonEmpty || links[k].own.NonEmpty
				}
				f := stage * rows
				for k := range links {
					links[k].add(u, &c.sum, f, min(f+rows, count), p.read != nil)
				}
				t.passStage(stage)
			}
			for k := 0; k < len(links) && p.read != nil; k++ {
				l := &links[k]
				l.own.NonEmpty = l.hasPast
				p.read(l.s, i0+k, &l.own)
			}
		}
	})
}

// scanMember is a member's end of a chain, for one part.
type scanMember[T tensor.Float] struct {
	s       *Scan[T]
	own     features.Moments[T] // of the part, and then of the sum before it
	hasPast bool                // the sum before it is not empty
	fade    T                   // its factor, once it has been seen
}

// add adds features f0 ≤ f < f1 of the part to the sum. With before set, the sum before
// the part replaces the features of the part.
func (l *scanMember[T]) add(u *Task[T], sum *features.Moments[T], f0, f1 int, before bool) {
	var lows, lowz []T // what roundings left out
	if sum.Residual != nil {
		lows, lowz = sum.Residual.S[f0*sum.Stride:f1*sum.Stride], sum.Residual.Z[f0:f1]
	}
	l.move(u, sum.S[f0*sum.Stride:f1*sum.Stride], lows, l.own.S[f0*sum.Stride:], before)
	l.move(u, sum.Z[f0:f1], lowz, l.own.Z[f0:], before)
}

func (l *scanMember[T]) move(u *Task[T], sum, low, own []T, before bool) {
	mark := u.Arena.Mark()
	tmp := arena.Take[T](u.Arena, min(chainMove, len(sum)))
	for len(sum) > 0 {
		n := min(len(sum), chainMove)
		s, o := sum[:n], own[:n]
		var lo []T
		if low != nil {
			lo, low = low[:n], low[n:]
		}
		sum, own = sum[n:], own[n:]
		switch {
		case !l.hasPast && l.own.NonEmpty:
			copy(s, o)
			clear(lo)
		case l.hasPast && !l.own.NonEmpty:
			if before {
				copy(o, s)
			}
			l.age(u, s, lo)
		case l.hasPast && l.own.NonEmpty && before && lo != nil && l.fade == 1:
			u.Table.SwapCarry(s, lo, o)
		case l.hasPast && l.own.NonEmpty:
			if before {
				copy(tmp, s)
			}
			l.age(u, s, lo)
			if lo != nil {
				u.Table.AddCarry(s, lo, o)
			} else {
				u.Table.Add(s, s, o)
			}
			if before {
				copy(o, tmp)
			}
		}
	}
	u.Arena.Reset(mark)
}

// age multiplies sums, and what their roundings left out, by the part's factor.
func (l *scanMember[T]) age(u *Task[T], sum, low []T) {
	if l.fade != 1 {
		u.Table.Scale(sum, l.fade, sum)
		u.Table.Scale(low, l.fade, low)
	}
}
