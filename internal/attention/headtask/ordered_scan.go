package headtask

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/features"
)

// orderedScan is a sum of moments that a group extends part by part. Members sum parts from
// zero at the same time and add them in turn. One worker does the same operations when
// it adds each part to the sum at once, since Moments.AddTokens sums from zero first.
type orderedScan struct{ sum features.Moments }

// scanPart is what goes into a chain between two sights of the sum.
type scanPart struct {
	add  func(s *Scan, i int, m *features.Moments) // adds part i to m
	fade func(s *Scan) float                       // factor of the sum before the last added part; nil: 1
	read func(s *Scan, i int, m *features.Moments) // reads in m the sum before the part; nil: the sum is not read
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
func (c *orderedScan) extend(u *Task, n int, p scanPart) {
	count := len(c.sum.S) / c.sum.Stride
	many := min(max(chainSums/len(c.sum.S), 1), 8) // parts of a piece
	rows := max(chainBlock/c.sum.Stride, 1)        // features of a block
	u.runParallel(pieces(n, many), pieces(count, rows), func(u *Task, t *tokenGroup) {
		links := make([]scanMember, min(many, n))
		for k := range links {
			s := u.memberScan()
			links[k] = scanMember{s: s, own: s.Moments}
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
type scanMember struct {
	s       *Scan
	own     features.Moments // of the part, and then of the sum before it
	hasPast bool             // the sum before it is not empty
	fade    float            // its factor, once it has been seen
}

// add adds features f0 ≤ f < f1 of the part to the sum. With before set, the sum before
// the part replaces the features of the part.
func (l *scanMember) add(u *Task, sum *features.Moments, f0, f1 int, before bool) {
	var lows, lowz []float // what roundings left out
	if sum.Residual != nil {
		lows, lowz = sum.Residual.S[f0*sum.Stride:f1*sum.Stride], sum.Residual.Z[f0:f1]
	}
	l.move(u, sum.S[f0*sum.Stride:f1*sum.Stride], lows, l.own.S[f0*sum.Stride:], before)
	l.move(u, sum.Z[f0:f1], lowz, l.own.Z[f0:], before)
}

func (l *scanMember) move(u *Task, sum, low, own []float, before bool) {
	mark := u.Arena.Mark()
	tmp := arena.Take[float](u.Arena, min(chainMove, len(sum)))
	for len(sum) > 0 {
		n := min(len(sum), chainMove)
		s, o := sum[:n], own[:n]
		var lo []float
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
func (l *scanMember) age(u *Task, sum, low []float) {
	if l.fade != 1 {
		u.Table.Scale(sum, l.fade, sum)
		u.Table.Scale(low, l.fade, low)
	}
}
