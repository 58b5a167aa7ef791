package headtask

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/features"
	"github.com/farfield-ml/farfield/internal/kernel"
)

// twoSidedMember is what a worker of an twoSidedScan has.
type twoSidedMember struct {
	*Task
	part    *features.Monomials
	sum     features.Moments // of the parts that a reader has
	ownRoom []float
}

// addGrad adds to columns dx the gradient of tokens with columns x through the sum, from
// rows y and numbers w.
func (x *twoSidedMember) addGrad(u *TwoSidedForm, dx, columns, y, w []float) {
	n := len(w)
	mark := x.Arena.Mark()
	yt := arena.Take[float](x.Arena, (u.Dv+1)*u.columns)
	x.Table.Transpose(yt, u.columns, y, u.stride, n, u.Dv)
	copy(yt[u.Dv*u.columns:][:n], w)
	x.sum.AddGrad(x.Arena, x.part, dx, columns, yt, u.columns, n, u.Dv)
	x.Arena.Reset(mark)
}

// twoSidedScan sums parts in both directions. Reader x has the sum of the parts k <
// countBefore(x) and k ≥ firstAfter(x), if there are any. Both grow with x, and countBefore(x+1) ≤
// firstAfter(x).
type twoSidedScan struct {
	task           *Task
	part           *features.Monomials // a block of the features
	parts, readers int
	countBefore    func(x int) int
	firstAfter     func(x int) int
	add            func(x *twoSidedMember, k int, m *features.Moments) // adds part k to m
	read           func(x *twoSidedMember, i int)
}

// run takes all parts in and has all readers read. Sums exist for a stretch of readers
// at a time. If there is more than one, the sums after each come from a first pass from
// the end.
func (c twoSidedScan) run() {
	if c.readers == 0 {
		return
	}
	mark := c.task.Arena.Mark()
	defer c.task.Arena.Reset(mark)
	r := twoSidedSums{twoSidedScan: c, stride: kernel.Pad(c.task.Dv)}
	r.size = momentsSize(c.part.Count, r.stride)
	room := min(twoSidedParts(r.size), c.parts)
	starts := c.stretches(room)
	longest := room
	for i, x0 := range starts[:len(starts)-1] {
		longest = max(longest, c.firstAfter(starts[i+1]-1)-c.countBefore(x0))
	}
	r.sums, r.tails, r.head = r.take(longest), r.take(longest+1), r.take(1)
	rest := r.sumRest(starts, longest)
	r.sumHead(longest)
	for i, x0 := range starts[:len(starts)-1] {
		r.readStretch(x0, starts[i+1], r.slot(rest, i))
	}
}

// stretches returns the first reader of each stretch, and the number of readers.
func (c twoSidedScan) stretches(room int) []int {
	starts := []int{0}
	for x := 1; x < c.readers; x++ {
		if c.firstAfter(x)-c.countBefore(starts[len(starts)-1]) > room {
			starts = append(starts, x)
		}
	}
	return append(starts, c.readers)
}

// twoSidedSums are the sums of a scan.
type twoSidedSums struct {
	twoSidedScan
	stride, size int     // elements of the rows of features, and of moments
	sums, tails  []float // of each part of a stretch, then of the parts up to it, and of those from it on
	head         []float // of the parts before a stretch
}

func (r *twoSidedSums) take(n int) []float { return arena.Take[float](r.task.Arena, n*r.spacing()) }

// spacing is the number of elements from one moments to the next.
func (r *twoSidedSums) spacing() int { return kernel.Pad(r.size + kernel.Lanes - 1) }

// moments returns the moments of sums x.
func (r *twoSidedSums) moments(x []float) features.Moments {
	n := r.part.Count * r.stride
	return features.Moments{S: x[:n:n], Z: x[n:], Stride: r.stride}
}

// slot returns element i of sums.
func (r *twoSidedSums) slot(sums []float, i int) []float { return sums[i*r.spacing():][:r.spacing()] }

// each calls f for n pieces.
func (r *twoSidedSums) each(n int, f func(x *twoSidedMember, i int)) {
	eachPiece(r.task, n, 0, func(u *Task) *twoSidedMember {
		x := &twoSidedMember{Task: u, part: r.part, ownRoom: arena.Take[float](u.Arena, r.spacing())}
		if u.Workers > 1 {
			x.part = r.part.Clone()
		}
		return x
	}, func(x *twoSidedMember, _ *tokenGroup, i int) { f(x, i) })
}

// eachBlock calls f for pieces lo ≤ i < hi of sums.
func (r *twoSidedSums) eachBlock(f func(t *kernel.Table[float], lo, hi int)) {
	r.each(pieces(r.size, chainBlock), func(x *twoSidedMember, i int) {
		f(x.Table, i*chainBlock, min((i+1)*chainBlock, r.size))
	})
}

// sumParts sets sums from slot on to parts k0 ≤ k < k1.
func (r *twoSidedSums) sumParts(slot, k0, k1 int) {
	r.each(k1-k0, func(x *twoSidedMember, i int) {
		m := r.moments(r.slot(r.sums, slot+i))
		r.add(x, k0+i, &m)
	})
}

// sumRest returns for each stretch the sum of the parts after its last reader.
func (r *twoSidedSums) sumRest(starts []int, room int) []float {
	stretches := len(starts) - 1
	rest, sum := arena.TakeZeros[float](r.task.Arena, stretches*r.spacing()), arena.TakeZeros[float](r.task.Arena, r.spacing())
	k1 := r.parts
	for i := stretches - 1; i >= 0; i-- {
		end := r.firstAfter(starts[i+1] - 1)
		for k1 > end {
			k0 := max(k1-room, end)
			r.sumParts(0, k0, k1)
			r.eachBlock(func(t *kernel.Table[float], lo, hi int) {
				for k := k1 - 1; k >= k0; k-- {
					t.Add(sum[lo:hi], r.slot(r.sums, k-k0)[lo:hi], sum[lo:hi])
				}
			})
			k1 = k0
		}
		copy(r.slot(rest, i), sum)
	}
	return rest
}

// sumHead sets head to the sum of the first parts, which all readers have.
func (r *twoSidedSums) sumHead(room int) {
	clear(r.head)
	for k0, end := 0, r.countBefore(0); k0 < end; k0 += room {
		k1 := min(k0+room, end)
		r.sumParts(0, k0, k1)
		r.eachBlock(func(t *kernel.Table[float], lo, hi int) {
			for k := range k1 - k0 {
				t.Add(r.head[lo:hi], r.head[lo:hi], r.slot(r.sums, k)[lo:hi])
			}
		})
	}
}

// readStretch has readers x0 ≤ x < x1 read; rest is the sum of the parts after the last.
// Parts that no reader has before or after it are left out.
func (r *twoSidedSums) readStretch(x0, x1 int, rest []float) {
	k0, k1 := r.countBefore(x0), r.firstAfter(x1-1)
	firsts, lasts := r.countBefore(min(x1, r.readers-1))-k0, r.firstAfter(x0)-k0
	n := k1 - k0
	r.sumParts(0, k0, k0+firsts)
	r.sumParts(max(firsts, lasts), k0+max(firsts, lasts), k1)
	r.eachBlock(func(t *kernel.Table[float], lo, hi int) {
		copy(r.slot(r.tails, n)[lo:hi], rest[lo:hi])
		for k := n - 1; k >= lasts; k-- {
			t.Add(r.slot(r.tails, k)[lo:hi], r.slot(r.sums, k)[lo:hi], r.slot(r.tails, k+1)[lo:hi])
		}
		sum := r.head[lo:hi]
		for k := range firsts {
			part := r.slot(r.sums, k)[lo:hi]
			t.Add(part, sum, part)
			sum = part
		}
	})
	r.each(x1-x0, func(x *twoSidedMember, i int) {
		before, after := r.countBefore(x0+i), r.firstAfter(x0+i)
		p, q := r.upTo(before-k0), r.slot(r.tails, after-k0)
		switch {
		case before == 0 && after == r.parts:
			return
		case after == r.parts:
			x.sum = r.moments(p)
		case before == 0:
			x.sum = r.moments(q)
		default:
			x.sum = r.moments(x.ownRoom)
			x.Table.Add(x.ownRoom[:r.size], p[:r.size], q[:r.size])
		}
		x.sum.NonEmpty = true
		r.read(x, x0+i)
	})
	if x1 < r.readers {
		copy(r.head, r.upTo(r.countBefore(x1)-k0))
	}
}

// upTo returns the sum of all parts before part n of a stretch.
func (r *twoSidedSums) upTo(n int) []float {
	if n == 0 {
		return r.head
	}
	return r.slot(r.sums, n-1)
}
