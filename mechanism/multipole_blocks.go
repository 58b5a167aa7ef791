package mechanism

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/tensor"
)

// keyBlock is a block of keys j0 ≤ j < j1 that is clustered by itself.
type keyBlock struct {
	j0, j1 int
	memory *arena.Arena
	mark   int // of memory before the block

	order  []int32 // unmasked keys by cluster, in their order
	begin  []int32 // [clusters+1] first key of each cluster in order
	groups []int32 // [groups+1] first cluster of each group; of a causal call the clusters are one group
	// k and v are rows of keys and values in that order, padded for products. columns has the keys
	// of each cluster as columns [D,Pad(keys)], from offsets on.
	k, v    tensor.Mat
	columns []float
	offsets []uint64

	unit float // power of 2 near the largest number among the keys
	// For each cluster: its mean, half of the variance of each channel in units, Σv, and Σ|k-c̄|² in
	// units. For each group: Σ (k-c̄) vᵀ, with k-c̄ in units, and Σ n·σ²/2 of its clusters in units.
	means, halves, sums, dipoles tensor.Mat // [clusters,D], [clusters,D], [clusters,Dv], [groups·D,Dv]
	spreads                      []float    // [clusters]
	profiles                     tensor.Mat // [groups,D]
	grads                        blockGrads // of Backward
}

func (b *keyBlock) clusters() int  { return len(b.begin) - 1 }
func (b *keyBlock) size(c int) int { return int(b.begin[c+1] - b.begin[c]) }

// holds reports whether the block is made, of the keys j0 ≤ j < j1.
func (b *keyBlock) holds(j0, j1 int) bool { return b.memory != nil && b.j0 == j0 && b.j1 == j1 }

// clustersOf returns the number of clusters for n keys.
func (x *multipoleAttention) clustersOf(n int) int {
	size := x.size
	if size == 0 {
		size = max(int(math.Sqrt(float64(n)/8)), leastKeys)
	}
	return (n + size - 1) / size
}

// groupsOf returns the number of groups for n keys in the given number of clusters.
func groupsOf(n, clusters int) int {
	return min(int(math.Round(math.Sqrt(float64(clusters)))), max(n/groupKeys, 1), clusterGroups)
}

// set clusters the unmasked keys j0 ≤ j < j1 in two levels: into groups, and each group into
// clusters. It takes memory from ar, or if that is nil from an arena of its own of the right size.
func (b *keyBlock) set(x *multipoleAttention, h *headwise.Head, ar *arena.Arena, j0, j1 int) {
	n, d, dv := 0, h.K.Cols, h.V.Cols
	for j := j0; j < j1; j++ {
		if h.IsUnmasked(j) {
			n++
		}
	}
	count := x.clustersOf(n)
	groups := groupsOf(n, count)
	most := min(count+groups, n) // clusters, after shares are rounded
	kept := groups
	if h.Causal {
		kept = 1
	}
	if ar == nil {
		ar = arena.New(blockWords(n, most, kept, d, dv))
	}
	*b = keyBlock{j0: j0, j1: j1, memory: ar, mark: ar.Mark()}
	b.order, b.begin, b.groups = arena.Take[int32](ar, n)[:0], arena.Take[int32](ar, most+1)[:0], arena.Take[int32](ar, kept+1)[:0]
	b.k, b.v = takePadded(ar, n, d), takePadded(ar, n, dv)
	b.columns, b.offsets = arena.TakeZeros[float](ar, d*(n+most*(kernel.Lanes-1))), arena.Take[uint64](ar, most)
	b.means, b.halves, b.sums = takeZeroRows(ar, most, d), takeZeroRows(ar, most, d), takeZeroRows(ar, most, dv)
	b.dipoles, b.profiles = takeZeroRows(ar, kept*d, kernel.Pad(dv)), takeZeroRows(ar, kept, d)
	b.spreads = arena.TakeZeros[float](ar, most)
	b.begin, b.groups, b.unit = append(b.begin, 0), append(b.groups, 0), 1
	if n == 0 {
		return
	}

	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	keys, rows := arena.Take[int32](h.Scratch, n)[:0], h.TakeScratch(n, d)
	for j := j0; j < j1; j++ {
		if h.IsUnmasked(j) {
			copy(rows.Row(len(keys)), h.K.Row(j))
			keys = append(keys, int32(j))
		}
	}
	// In units of the largest number, products stay in the range of the element type.
	b.unit = unitOf(h.Table, h.Scratch, rows.Data)
	h.Table.Scale(rows.Data, 1/b.unit, rows.Data)
	of := arena.Take[int32](h.Scratch, n)
	lloyd(h, of, rows, groups)
	order, begin := entry.SortGroups(h.Scratch, of, groups)
	for g := range groups {
		members := order[begin[g]:begin[g+1]]
		if len(members) == 0 {
			continue
		}
		mark := h.Scratch.Mark()
		own := rows
		if groups > 1 {
			own = h.TakeScratch(len(members), d)
			for i, at := range members {
				copy(own.Row(i), rows.Row(int(at)))
			}
		}
		fine := max((2*count*len(members)+n)/(2*n), 1)
		lloyd(h, of, own, fine)
		sorted, ends := entry.SortGroups(h.Scratch, of[:len(members)], fine)
		distances := takePadded(h.Scratch, len(members), d) // k - c̄ in units
		first := len(b.order)
		for c := range fine {
			from, to := int(ends[c]), int(ends[c+1])
			if from == to {
				continue
			}
			begin := len(b.order)
			for i := from; i < to; i++ {
				j := keys[members[sorted[i]]]
				copy(b.k.Row(len(b.order)), h.K.Row(int(j)))
				copy(b.v.Row(len(b.order)), h.V.Row(int(j)))
				b.order = append(b.order, j)
			}
			h.Table.Scale(distances.Data[from*distances.Stride:to*distances.Stride], 1/b.unit, b.k.Data[begin*b.k.Stride:])
			b.addCluster(h.Table, distances.Slice(from, to))
		}
		dipole := b.dipoles.Data[(len(b.groups)-1)*d*b.dipoles.Stride:][:d*b.dipoles.Stride]
		h.Table.Block(d, b.v.Stride, len(members), distances.Data, 1, distances.Stride, b.v.Data[first*b.v.Stride:], b.v.Stride, dipole, b.dipoles.Stride, h.Causal)
		if !h.Causal {
			b.addGroup()
		}
		h.Scratch.Reset(mark)
	}
	if h.Causal {
		b.addGroup()
	}
	n = b.clusters()
	b.means, b.halves, b.sums = b.means.Slice(0, n), b.halves.Slice(0, n), b.sums.Slice(0, n)
}

// blockWords returns the words of memory that set takes for n keys in at most so many clusters.
func blockWords(n, most, groups, d, dv int) int {
	words := arena.Words[int32](n) + arena.Words[int32](most+1) + arena.Words[int32](groups+1) + arena.Words[uint64](most)
	for _, size := range []int{
		n * kernel.Pad(d), n * kernel.Pad(dv), d * (n + most*(kernel.Lanes-1)), // k, v, columns
		most * d, most * d, most * dv, groups * d * kernel.Pad(dv), // means, halves, sums, dipoles
		most, groups * d, // spreads, profiles
	} {
		words += arena.Words[float](size)
	}
	return words
}

// clone returns a copy of the block, which has memory of its own, without gradients.
func (b *keyBlock) clone() keyBlock {
	c, ar := *b, arena.New(b.memory.Mark()-b.mark)
	c.memory, c.mark, c.grads = ar, 0, blockGrads{}
	c.order, c.begin, c.groups = takeCopy(ar, b.order), takeCopy(ar, b.begin), takeCopy(ar, b.groups)
	c.columns, c.offsets, c.spreads = takeCopy(ar, b.columns), takeCopy(ar, b.offsets), takeCopy(ar, b.spreads)
	for _, x := range []*tensor.Mat{&c.k, &c.v, &c.means, &c.halves, &c.sums, &c.dipoles, &c.profiles} {
		x.Data = takeCopy(ar, x.Data)
	}
	return c
}

// takeCopy returns a copy of x in memory of ar.
func takeCopy[E arena.Element](ar *arena.Arena, x []E) []E {
	y := arena.Take[E](ar, len(x))
	copy(y, x)
	return y
}

// addCluster appends a cluster of the last rows.Rows keys in order. rows holds these keys in
// units, and is overwritten by their distances from the mean.
func (b *keyBlock) addCluster(t *kernel.Table[float], rows tensor.Mat) {
	c, n, d := b.clusters(), rows.Rows, rows.Cols
	begin := int(b.begin[c])
	b.begin = append(b.begin, int32(begin+n))
	mean, half, sum := b.means.Row(c), b.halves.Row(c), b.sums.Row(c)
	t.SumRows(sum, b.v.Data[begin*b.v.Stride:], b.v.Stride, n)
	// Distances from the first key, whose mean is small beside the keys.
	t.Scale(mean, -1/b.unit, b.k.Row(begin))
	t.AddRows(rows.Data, rows.Stride, rows.Data, rows.Stride, mean, 0, n, d)
	clear(mean)
	t.SumRows(mean, rows.Data, rows.Stride, n)
	t.Scale(mean, -1/float(n), mean)
	t.AddRows(rows.Data, rows.Stride, rows.Data, rows.Stride, mean, 0, n, d)
	for i := range n {
		t.MulAdd(half, rows.Row(i), rows.Row(i))
	}
	t.Scale(half, 0.5/float(n), half)
	t.Scale(mean, -1, mean)
	t.Axpy(mean, 1/b.unit, b.k.Row(begin))
	t.Scale(mean, b.unit, mean)
	if b.offsets = b.offsets[:c+1]; c == 0 {
		b.offsets[c] = 0
	} else {
		b.offsets[c] = b.offsets[c-1] + uint64(d*kernel.Pad(b.size(c-1)))
	}
	t.Transpose(b.columns[b.offsets[c]:], kernel.Pad(n), b.k.Data[begin*b.k.Stride:], b.k.Stride, n, d)
}

// lloyd sets of [keys] to the nearest of count centres of each key. Centres begin at keys that
// lie evenly apart and move to the means of their keys lloydSteps times.
func lloyd(h *headwise.Head, of []int32, keys tensor.Mat, count int) {
	ar, t, d, n := h.Scratch, h.Table, keys.Cols, keys.Rows
	if count == 1 {
		clear(of[:n])
		return
	}
	mark := ar.Mark()
	defer ar.Reset(mark)
	centres, halves := h.TakeScratch(count, d), arena.Take[float](ar, count)
	for c := range count {
		copy(centres.Row(c), keys.Row(c*n/count))
	}
	width, sizes := kernel.Pad(count), arena.Take[int32](ar, count)
	columns := arena.TakeZeros[float](ar, d*width)
	products := h.TakeScratch(min(assignedKeys, n), width)
	for step := 0; ; step++ {
		for c := range count {
			halves[c] = -t.Dot(centres.Row(c), centres.Row(c)) / 2
		}
		t.Transpose(columns, width, centres.Data, d, count, d)
		for i0 := 0; i0 < n; i0 += assignedKeys {
			m := min(assignedKeys, n-i0)
			t.Block(m, width, d, keys.Data[i0*d:], d, 1, columns, width, products.Data, width, false)
			t.AddRows(products.Data, width, products.Data, width, halves, 0, m, count)
			for r := range m {
				row := products.Data[r*width:][:count]
				of[i0+r] = int32(max(slices.Index(row, t.Max(row)), 0)) // not a number: the first
			}
		}
		if step == lloydSteps {
			return
		}
		clear(sizes)
		for i, c := range of[:n] {
			if sizes[c]++; sizes[c] == 1 {
				copy(centres.Row(int(c)), keys.Row(i))
			} else {
				t.Add(centres.Row(int(c)), centres.Row(int(c)), keys.Row(i))
			}
		}
		for c, size := range sizes {
			if size > 0 {
				t.Scale(centres.Row(c), 1/float(size), centres.Row(c))
			}
		}
	}
}

// unitOf returns the power of 2 at or below the largest absolute value in x, 1 if that is 0 or
// not finite.
func unitOf(t *kernel.Table[float], ar *arena.Arena, x []float) float {
	mark := ar.Mark()
	defer ar.Reset(mark)
	room, most := arena.Take[float](ar, min(len(x), 1024)), float(0) // which stays in the first-level cache
	for len(x) > 0 {
		n := min(len(x), len(room))
		t.Scale(room[:n], -1, x[:n])
		most = max(most, t.Max(x[:n]), t.Max(room[:n]))
		x = x[n:]
	}
	if !(most > 0) || math.IsInf(float64(most), 0) {
		return 1
	}
	_, exponent := math.Frexp(float64(most))
	return float(math.Ldexp(1, max(exponent-1, -100)))
}

// addGroup adds a group of the last clusters.
func (b *keyBlock) addGroup() {
	g := len(b.groups) - 1
	profile := b.profiles.Row(g)
	for c := int(b.groups[g]); c < b.clusters(); c++ {
		var spread float
		for a, y := range b.halves.Row(c) {
			spread += y
			profile[a] += float(b.size(c)) * y
		}
		b.spreads[c] = 2 * float(b.size(c)) * spread
	}
	b.groups = append(b.groups, int32(b.clusters()))
}

// takePadded returns a matrix of zeros whose rows are padded for products.
func takePadded(ar *arena.Arena, rows, cols int) tensor.Mat {
	width := kernel.Pad(cols)
	return tensor.Mat{Data: arena.TakeZeros[float](ar, rows*width), Rows: rows, Cols: cols, Stride: width}
}

// takeZeroRows returns a contiguous matrix of zeros.
func takeZeroRows(ar *arena.Arena, rows, cols int) tensor.Mat {
	return tensor.Mat{Data: arena.TakeZeros[float](ar, rows*cols), Rows: rows, Cols: cols, Stride: cols}
}

// farField holds the operands of queries for the clusters of all blocks, in a causal call of those before
// them. Numbers in units are divided by unit for each factor k-c̄. The dipole of a group is Σ(k-c̄) vᵀ.
//
// In a causal call all clusters are one group, so a query needs one product with a dipole.
type farField struct {
	clusters, groups, stride int
	unit                     float   // power of 2
	means, halves            []float // [D][stride] c̄ and σ²/2 as columns, σ²/2 in units
	// values [clusters,Dv+groups] holds Σv of each cluster, and its share of the Σ|k-c̄|² of its group
	// in the column of the group. dipoles [groups·D,Dv] holds the dipoles of the groups, in units.
	values, dipoles tensor.Mat
	keys            float   // of all clusters
	counts          []float // [clusters] n
	shares          []float // [clusters] the last column of values, of one group
	blocks, first   []int32 // [clusters] block of a cluster, and the first cluster of that block
	spreads         []float // [D][Pad(groups)] Σ n·σ²/2 over the clusters of each group, in units
	totals          []float // [groups] Σ|k-c̄|² in units; below leastSpread clusters have no shares
	dv              int

	tails, ones []float // [clusters] 4(min(n,16)-1) for the reach of scores in a cluster, and 1
}

// setFar sets the far field of the blocks.
func (p *inputPass) setFar() {
	f, ar, d, dv := &p.far, p.memory, p.h.K.Cols, p.h.V.Cols
	*f = farField{unit: 0, dv: dv}
	for i := range p.blocks {
		b := &p.blocks[i]
		f.clusters += b.clusters()
		f.groups += len(b.groups) - 1
		f.keys += float(len(b.order))
		if b.clusters() > 0 {
			f.unit = max(f.unit, b.unit)
		}
	}
	n := f.clusters
	f.stride = kernel.Stride(n)
	f.means = arena.TakeZeros[float](ar, d*f.stride)
	f.counts, f.blocks, f.first = arena.Take[float](ar, n), arena.Take[int32](ar, n), arena.Take[int32](ar, n)
	f.halves, f.tails, f.ones = arena.TakeZeros[float](ar, d*f.stride), arena.Take[float](ar, n), arena.Take[float](ar, n)
	if p.h.Causal {
		f.groups = min(f.groups, 1)
	}
	f.values, f.shares = takePadded(ar, n, dv+f.groups), arena.TakeZeros[float](ar, n)
	f.dipoles, f.totals = takePadded(ar, f.groups*d, dv), arena.TakeZeros[float](ar, f.groups)
	padded := kernel.Pad(f.groups)
	f.spreads = arena.TakeZeros[float](ar, d*padded)
	t := p.h.Table
	p.eachGroup(func(b *keyBlock, k, c0, g int) {
		ratio := b.unit / f.unit
		for c := b.groups[k]; c < b.groups[k+1]; c++ {
			f.totals[g] += ratio * ratio * b.spreads[c]
		}
		for a, y := range b.profiles.Row(k) {
			f.spreads[a*padded+g] += ratio * ratio * y
		}
		for a := range d {
			t.Axpy(f.dipoles.Row(g*d+a), ratio, b.dipoles.Row(k*d + a)[:dv])
		}
	})
	p.eachGroup(func(b *keyBlock, k, c0, g int) {
		ratio := b.unit / f.unit
		for c := b.groups[k]; c < b.groups[k+1]; c++ {
			n, at := b.size(int(c)), c0+int(c)
			row := f.values.Row(at)
			copy(row, b.sums.Row(int(c)))
			if f.totals[g] >= leastSpread {
				f.shares[at] = ratio * ratio * b.spreads[c] / f.totals[g]
				row[dv+g] = f.shares[at]
			}
			f.counts[at], f.tails[at], f.ones[at] = float(n), float(4*(min(n, leastKeys)-1)), 1
		}
	})
	c0 := 0
	for i := range p.blocks {
		b := &p.blocks[i]
		n := b.clusters()
		if n == 0 {
			continue
		}
		t.Transpose(f.means[c0:], f.stride, b.means.Data, d, n, d)
		t.Transpose(f.halves[c0:], f.stride, b.halves.Data, d, n, d)
		ratio := b.unit / f.unit
		for a := range d {
			row := f.halves[a*f.stride+c0:][:n]
			t.Scale(row, ratio*ratio, row)
		}
		for c := c0; c < c0+n; c++ {
			f.blocks[c], f.first[c] = int32(i), int32(c0)
		}
		c0 += n
	}
}

// eachGroup calls f with group k of each block that has clusters. c0 is the first cluster of the block in
// the far field, and g the group in the far field.
func (p *inputPass) eachGroup(f func(b *keyBlock, k, c0, g int)) {
	c0, g := 0, 0
	for i := range p.blocks {
		b := &p.blocks[i]
		for k := range len(b.groups) - 1 {
			f(b, k, c0, g)
			if !p.h.Causal {
				g++
			}
		}
		c0 += b.clusters()
	}
}
