package zoo

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// clusterRows is the number of clusters whose weights are computed at once.
const clusterRows = 32

// clusteredAttention gives each query the output of the mean query of its cluster. In
// improved-clustered, each query shares out the weight of the top keys of its cluster
// by its own softmax. Neither the cluster of a query nor the choice of top keys has a
// gradient.
type clusteredAttention struct {
	name, setting        string
	iterations, topCount int
	scale                float64 // 0: 1/√D
	planes, start        *param.Param
	constants            param.Set
	softmax              *headwise.PatternSoftmax
}

func NewClustered(r *entry.Reader) (headwise.Function, error) {
	return newClusteredAttention(r, 0)
}

func NewImprovedClustered(r *entry.Reader) (headwise.Function, error) {
	top, err := r.Integer("topk", 1, 4096)
	if err != nil {
		return nil, err
	}
	return newClusteredAttention(r, top)
}

func newClusteredAttention(r *entry.Reader, top int) (headwise.Function, error) {
	x := &clusteredAttention{name: r.Name, topCount: top}
	clusters, err := r.Integer("clusters", 1, 4096)
	if err != nil {
		return nil, err
	}
	bits, err := r.Integer("bits", 1, 64)
	if err != nil {
		return nil, err
	}
	if x.iterations, err = r.Integer("iterations", 1, 1000); err != nil {
		return nil, err
	}
	bias, err := r.Bool("bias")
	if err != nil {
		return nil, err
	}
	if x.scale, err = r.SoftmaxScale(); err != nil {
		return nil, err
	}
	key, err := r.Key()
	if err != nil {
		return nil, err
	}
	x.setting = fmt.Sprintf("%s clusters=%d bits=%d iterations=%d bias=%t topk=%d scale=%s",
		x.name, clusters, bits, x.iterations, bias, x.topCount, entry.FormatScale(x.scale))
	x.softmax = &headwise.PatternSoftmax{Scale: x.scale}
	width := r.ParamWidth() + 1
	if err := r.Room("planes", bits, width); err != nil {
		return nil, err
	}
	x.planes = x.constants.New("planes", false, bits, width)
	for i := range x.planes.Data {
		if bias || i%width < width-1 {
			x.planes.Data[i] = float(float32(key.Fold(1).Normal(uint64(i)))) // the same in both precisions
		}
	}
	x.start = x.constants.New("start", false, clusters)
	for c := range x.start.Data { // one in each part of the queries
		x.start.Data[c] = float(float32((float64(c) + key.Fold(2).Float64(uint64(c))) / float64(clusters)))
	}
	return x, nil
}

func (x *clusteredAttention) Traits() attention.Traits {
	return attention.Traits{Name: x.name, MixedQueries: true, Positive: true, NoCausal: "a cluster is made of all its queries, later ones too"}
}

func (x *clusteredAttention) Setting() string       { return x.setting }
func (x *clusteredAttention) Params() *param.Set    { return nil }
func (x *clusteredAttention) Constants() *param.Set { return &x.constants }

func (x *clusteredAttention) Check(c *attention.Call) error {
	if d := x.planes.Shape[1] - 1; c.Q.D != d {
		return fmt.Errorf("q: has width %d, planes of %s are for %d", c.Q.D, x.name, d)
	}
	return nil
}

// assignClusters sets groups [queries] to the cluster numbers of the queries. Empty
// clusters have no number.
func (x *clusteredAttention) assignClusters(h *headwise.Head, groups []float) {
	ar := h.Scratch
	mark := ar.Mark()
	defer ar.Reset(mark)
	hashes := SignHashes(h, h.Q, tensor.Mat{Data: x.planes.Data, Rows: x.planes.Shape[0], Cols: x.planes.Shape[1], Stride: x.planes.Shape[1]})
	means, of := arena.Take[uint64](ar, len(x.start.Data)), arena.Take[int32](ar, len(hashes))
	for c, at := range x.start.Data {
		means[c] = hashes[max(0, min(int(float64(at)*float64(len(hashes))), len(hashes)-1))]
	}
	HammingMeans(ar, of, hashes, means, x.iterations)
	number := arena.TakeZeros[int32](ar, len(means))
	for _, c := range of {
		number[c] = 1
	}
	var n int32
	for c, some := range number {
		number[c] = n
		n += some
	}
	for i, c := range of {
		groups[i] = float(number[c])
	}
}

// queryClusters holds the clusters of a head, and the numbers that their queries share.
type queryClusters struct {
	order, starts []int32    // queries sorted by cluster, and the first index of each cluster
	means         tensor.Mat // of queries
	scale         float
	topCount      int     // keys of each cluster
	keys          []int32 // top keys, cluster after cluster
	topMass       []float // sum of the weights of the top keys
}

// clusterQueries returns the queries of cluster c.
func (p *queryClusters) clusterQueries(c int) []int32 { return p.order[p.starts[c]:p.starts[c+1]] }

// groupQueries returns the clusters that groups [queries] describes.
func (x *clusteredAttention) groupQueries(h *headwise.Head, groups []float) queryClusters {
	of, n := arena.Take[int32](h.Scratch, len(groups)), 0
	for i, g := range groups {
		of[i] = int32(g)
		n = max(n, int(g)+1)
	}
	p := queryClusters{scale: float(x.scale), topCount: min(x.topCount, h.CountUnmasked()), means: h.TakeScratch(n, h.Q.Cols)}
	if x.scale == 0 {
		p.scale = float(1 / math.Sqrt(float64(h.Q.Cols)))
	}
	p.order, p.starts = entry.SortGroups(h.Scratch, of, n)
	p.keys, p.topMass = arena.Take[int32](h.Scratch, n*p.topCount), arena.Take[float](h.Scratch, n)
	for c := range n {
		row := p.means.Row(c)
		p.sumQueries(h, row, h.Q, c)
		h.Table.Scale(row, 1/float(len(p.clusterQueries(c))), row)
	}
	return p
}

// sumQueries sets dst to the sum of the rows y[i] over the queries i of cluster c.
func (p *queryClusters) sumQueries(h *headwise.Head, dst []float, y tensor.Mat, c int) {
	clear(dst)
	for _, i := range p.clusterQueries(c) {
		h.Table.Add(dst, dst, y.Row(int(i)))
	}
}

// setWeights sets w [clusters, keys] to the weights of clusters from c0 on, and stores
// their top keys with the sum of their weights.
func (p *queryClusters) setWeights(h *headwise.Head, w tensor.Mat, c0 int) {
	h.Multiply(w, p.means.Slice(c0, c0+w.Rows), h.K, false, true, false)
	h.Table.Scale(w.Data[:w.Rows*w.Cols], p.scale, w.Data[:w.Rows*w.Cols])
	for r := range w.Rows {
		row := w.Row(r)
		for j := range h.Mask {
			if !h.Mask[j] {
				row[j] = float(math.Inf(-1))
			}
		}
		Largest(p.topKeys(c0+r), row, h.Mask)
	}
	h.SoftmaxRows(w)
	for r := range w.Rows {
		p.topMass[c0+r] = 0
		for _, j := range p.topKeys(c0 + r) {
			p.topMass[c0+r] += w.Row(r)[j]
		}
	}
}

// topKeys returns the top keys of cluster c.
func (p *queryClusters) topKeys(c int) []int32 { return p.keys[c*p.topCount:][:p.topCount] }

// clearTopWeights sets the weights of top keys in w [clusters, keys] to 0.
func (p *queryClusters) clearTopWeights(w tensor.Mat, c0 int) {
	for r := range w.Rows {
		for _, j := range p.topKeys(c0 + r) {
			w.Row(r)[j] = 0
		}
	}
}

// topKeyPairs returns the pairs of the queries of each cluster with its top keys.
func (p *queryClusters) topKeyPairs() *headwise.Pattern {
	pairs := headwise.NewPattern()
	for c := range p.means.Rows {
		members := p.clusterQueries(c)
		lo, hi := pairs.AddPart(headwise.RowSet{N: len(members), List: members}, headwise.RowSet{N: p.topCount, List: p.topKeys(c)})
		for a := range lo {
			lo[a], hi[a] = 0, int32(p.topCount)
		}
	}
	return pairs
}

// splitSaved splits the saved elements into the cluster number of each query, the
// logarithm of its softmax sum over top keys, and its output over top keys.
func (x *clusteredAttention) splitSaved(h *headwise.Head, all []float) (groups, lse []float, own tensor.Mat) {
	n, dv := h.Q.Rows, h.V.Cols
	if x.topCount == 0 {
		return all, nil, own
	}
	return all[:n], all[n : 2*n], tensor.Mat{Data: all[2*n:], Rows: n, Cols: dv, Stride: dv}
}

func (x *clusteredAttention) Forward(h *headwise.Head) {
	n, dv := h.Q.Rows, h.V.Cols
	size := n
	if x.topCount > 0 {
		size += n * (1 + dv)
	}
	groups, lse, own := x.splitSaved(h, h.SaveBuffer(size))
	x.assignClusters(h, groups)
	p := x.groupQueries(h, groups)
	rest := h.TakeScratch(p.means.Rows, dv)
	for c0 := 0; c0 < p.means.Rows; c0 += clusterRows {
		mark := h.Scratch.Mark()
		c1 := min(c0+clusterRows, p.means.Rows)
		w := h.TakeScratch(c1-c0, h.K.Rows)
		p.setWeights(h, w, c0)
		p.clearTopWeights(w, c0)
		h.Multiply(rest.Slice(c0, c1), w, h.V, false, false, false)
		h.Scratch.Reset(mark)
	}
	if p.topCount > 0 {
		pairs := p.topKeyPairs()
		x.softmax.Forward(h, lse, pairs)
		pairs.Release()
		copy(own.Data, h.Out.Data[:n*dv])
	}
	for c := range p.means.Rows {
		for _, i := range p.clusterQueries(c) {
			row := h.Out.Row(int(i))
			if p.topCount == 0 {
				copy(row, rest.Row(c))
				continue
			}
			h.Table.Scale(row, p.topMass[c], row)
			h.Table.Add(row, row, rest.Row(c))
		}
	}
}

func (x *clusteredAttention) Backward(h *headwise.Head, g *headwise.Grads) {
	groups, lse, own := x.splitSaved(h, h.Saved)
	p := x.groupQueries(h, groups)
	g.Clear()
	dmeans, dout := h.TakeScratch(p.means.Rows, h.Q.Cols), h.TakeScratch(p.means.Rows, h.V.Cols)
	dmass := arena.TakeZeros[float](h.Scratch, p.means.Rows)
	for c := range p.means.Rows {
		p.sumQueries(h, dout.Row(c), g.DOut, c)
		for _, i := range p.clusterQueries(c) {
			if p.topCount > 0 {
				dmass[c] += h.Table.Dot(g.DOut.Row(int(i)), own.Row(int(i)))
			}
		}
	}
	for c0 := 0; c0 < p.means.Rows; c0 += clusterRows {
		mark := h.Scratch.Mark()
		c1 := min(c0+clusterRows, p.means.Rows)
		w, ds := h.TakeScratch(c1-c0, h.K.Rows), h.TakeScratch(c1-c0, h.K.Rows)
		do := dout.Slice(c0, c1)
		p.setWeights(h, w, c0)
		h.Multiply(ds, do, h.V, false, true, false)
		for c := c0; c < c1; c++ {
			for _, j := range p.topKeys(c) {
				ds.Row(c - c0)[j] = dmass[c]
			}
		}
		h.SoftmaxRowsGrad(ds, w)
		h.Table.Scale(ds.Data, p.scale, ds.Data)
		h.Multiply(dmeans.Slice(c0, c1), ds, h.K, false, false, false)
		h.Multiply(g.DK, ds, p.means.Slice(c0, c1), true, false, true)
		p.clearTopWeights(w, c0)
		h.Multiply(g.DV, w, do, true, false, true)
		h.Scratch.Reset(mark)
	}
	if p.topCount > 0 {
		scaled := h.TakeScratch(h.Q.Rows, h.V.Cols)
		for c := range p.means.Rows {
			for _, i := range p.clusterQueries(c) {
				h.Table.Scale(scaled.Row(int(i)), p.topMass[c], g.DOut.Row(int(i)))
			}
		}
		pairs := p.topKeyPairs()
		x.softmax.Backward(h, g, own, scaled, lse, pairs)
		pairs.Release()
	}
	for c := range p.means.Rows {
		part := 1 / float(len(p.clusterQueries(c)))
		for _, i := range p.clusterQueries(c) {
			h.Table.Axpy(g.DQ.Row(int(i)), part, dmeans.Row(c))
		}
	}
}

func (x *clusteredAttention) Cost(s attention.Shape) headwise.Cost {
	n, m, d, dv := float64(s.N), float64(s.M), float64(s.D), float64(s.Dv)
	c, bits := float64(len(x.start.Data)), float64(x.planes.Shape[0])
	top, held := min(float64(x.topCount), m), min(c, n)
	bytes := n + c*(d+dv+1) + clusterRows*m
	if x.topCount > 0 {
		bytes += n * (1 + dv)
	}
	return headwise.Cost{
		FLOPs: 2*n*bits*d + n*c*float64(x.iterations) + 2*held*m*(d+dv) + 2*n*top*(d+dv),
		Bytes: entry.ElementBytes()*bytes + 8*(n+c) + 4*(2*n+c*(top+66)),
	}
}
