package golden

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
)

// Files of reformer have three kinds: the authors' form, the exact form that it
// approximates, and the form of fast-transformers.
var (
	lshGroup     = zooGroup{name: "reformer", needs: []string{"qk", "v", "rotations", "bucket_size", "dup", "across"}, read: noReformer, cases: lshCase}
	sharedGroup  = zooGroup{name: "reformer", needs: []string{"qk", "v", "causal"}, read: noReformer, cases: sharedCase}
	chunkedGroup = zooGroup{name: "reformer", needs: []string{"q", "v", "planes", "chunk_size", "masked"}, read: noReformer, cases: chunkedCase}
)

func noReformer(*reader, *problem) string { return "no reformer with keys of its own" }

// leaksBorders is of programs: the causal form here has chunks of each bucket.
const leaksBorders = "it is not causal: sorting moves the borders of chunks by later tokens, too"

// reformerProblem reads what the files share; queries, which are keys too, have
// that name.
func reformerProblem(r *reader, name string, t relative) *problem {
	p := &problem{name: r.f.stem(), mechanism: "reformer", tolerance: t, numbers: map[string][]float64{}}
	p.call = oracle.Call{Q: r.heads(name), V: r.heads("v")}
	p.call.K = p.call.Q
	p.result(r, "o", "out")
	p.gradients(r, "go", map[string]string{"dq": "d_" + name, "dv": "d_v"})
	p.forms = p.wholeForms()
	return p
}

// sort sets what book says.
func (p *problem) sort(book *oracle.Reformer) {
	form, repeats, self, masks := "paper", "once", "alone", "absent"
	if book.SeparateRounds {
		form = "fast-transformers"
	}
	if book.Counted {
		repeats = "counted"
	}
	if book.Self {
		self = "seen"
	}
	if book.MaskedKeysSort {
		masks = "kept"
	}
	p.numbers["rotations"], p.headMatrix = book.Rotations, book.Weights
	p.options = mechanism.Options{Width: p.call.Q.D, Set: map[string]string{
		"bucket": strconv.Itoa(book.Bucket), "rounds": strconv.Itoa(book.Rounds), "buckets": strconv.Itoa(book.Buckets),
		"form": form, "repeats": repeats, "self": self, "masks": masks,
	}}
	if book.Scale != 0 {
		p.options.Set["scale"] = formatNumber(book.Scale)
	}
}

func lshCase(f *file, t relative) (*problem, string) {
	r := &reader{f: f}
	if r.truth("causal") {
		return nil, leaksBorders
	}
	if !r.truth("across") {
		return nil, "no setting here hides the other buckets of a chunk"
	}
	p := reformerProblem(r, "qk", t)
	shape := r.shape("rotations")
	if len(shape) != 3 {
		return nil, fmt.Sprintf("rotations has shape %v, needs [width, rounds, axes]", shape)
	}
	d, rounds, axes := shape[0], shape[1], shape[2]
	book := &oracle.Reformer{Bucket: r.integer("bucket_size"), Rounds: rounds, Buckets: 2 * axes, Counted: r.truth("dup"), MaskedKeysSort: true}
	book.Rotations = make([]float64, d*rounds*axes)
	for i, x := range r.floats("rotations") { // [D, rounds, axes]
		book.Rotations[i%(rounds*axes)*d+i/(rounds*axes)] = x
	}
	if f.hasArray("input_mask") { // one for each head
		p.call.Q, p.call.K, p.call.V, p.do = headsAsRows(p.call.Q), headsAsRows(p.call.K), headsAsRows(p.call.V), headsAsRows(p.do)
		p.call.KeyMask = r.bools("input_mask")
		if len(p.call.KeyMask) != p.call.Q.B*p.call.Q.N {
			return nil, fmt.Sprintf("input_mask has %d elements, qk needs %d", len(p.call.KeyMask), p.call.Q.B*p.call.Q.N)
		}
	}
	p.sort(book)
	if p.call.KeyMask != nil {
		p.aloneWhereMasked()
	}
	return p.finish(r), ""
}

// headsAsRows views the heads of one batch row as batch rows of one head.
func headsAsRows(x oracle.Heads) oracle.Heads {
	return oracle.HeadsOf(x.Data, x.B*x.H, 1, x.N, x.D)
}

// aloneWhereMasked leaves to masked queries their own values alone, as the authors'
// program does, where they see like others here.
func (p *problem) aloneWhereMasked() {
	p.compute = func() (map[string][]float64, error) {
		return aloneWhereMasked(p)
	}
}

func aloneWhereMasked(p *problem) (map[string][]float64, error) {
	m, c, err := prepareCall(p)
	if err != nil {
		return nil, err
	}
	do := convertHeads(p.do)
	for i, exists := range p.call.KeyMask {
		if !exists {
			clear(do.Head(i/do.N, 0).Row(i % do.N))
		}
	}
	got, err := computeResults(m, c, do)
	if err != nil {
		return nil, err
	}
	width := p.call.V.D
	for i, exists := range p.call.KeyMask {
		if exists {
			continue
		}
		copy(got["o"][i*width:][:width], c.V.Data[i*width:])
		for e, x := range p.do.Data[i*width:][:width] {
			got["dv"][i*width+e] += float(x)
		}
	}
	byArray := map[string][]float64{}
	for _, e := range p.want {
		byArray[e.array] = widenRows(got[e.what])
	}
	return byArray, nil
}

// sharedCase is softmax over all keys of length 1: a chunk that holds all.
func sharedCase(f *file, t relative) (*problem, string) {
	if f.hasArray("rotations") {
		return nil, "arrays that no mechanism here has"
	}
	r := &reader{f: f}
	p := reformerProblem(r, "qk", t)
	p.call.Causal = r.truth("causal")
	p.forms = p.wholeForms()
	p.sort(&oracle.Reformer{Bucket: max(p.call.Q.N, 1), Rounds: 1, Buckets: 2, Rotations: make([]float64, p.call.Q.D)})
	return p.finish(r), ""
}

func chunkedCase(f *file, t relative) (*problem, string) {
	r := &reader{f: f}
	if r.truth("causal") {
		return nil, leaksBorders
	}
	p := reformerProblem(r, "q", t)
	shape := r.shape("planes")
	if len(shape) != 3 {
		return nil, fmt.Sprintf("planes has shape %v, needs [rounds, bits, width]", shape)
	}
	if f.hasArray("key_lengths") && slices.ContainsFunc(r.integers("key_lengths"), func(n int) bool { return n < p.call.Q.N }) {
		return nil, "tokens beyond a length are sorted as zeros are, and average over each other"
	}
	p.sort(&oracle.Reformer{Bucket: r.integer("chunk_size"), Rounds: shape[0], Buckets: 2 * shape[1], Rotations: r.floats("planes"),
		SeparateRounds: true, Self: !r.truth("masked"), Scale: r.scalar("scale")})
	return p.finish(r), ""
}
