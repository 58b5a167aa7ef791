package golden

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
)

// entry is what index.json says of a file.
type entry struct {
	Name   string   `json:"name"`
	Group  string   `json:"group"`
	Output *float64 `json:"tolo"` // tolerances, as factors of the largest value
	Grad   *float64 `json:"tolg"`
}

// index holds entries by the names of their files, without suffix.
type index map[string]entry

func readIndex(path string) (index, error) {
	data, err := infile.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []entry
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	idx := index{}
	for _, e := range list {
		idx[e.Name] = e
	}
	return idx, nil
}

// missing returns the listed files that are not among entries.
func (idx index) missing(entries []fs.DirEntry) []string {
	present := map[string]bool{}
	for _, e := range entries {
		present[e.Name()] = true
	}
	var list []string
	for name := range idx {
		if file := name + ".npz"; !present[file] {
			list = append(list, file)
		}
	}
	slices.Sort(list)
	return list
}

// lowest is the smallest tolerance of a float32 result, for files without one.
const lowest = 1e-5

// zooCases returns the one case of a file with out, or why it is not compared.
func zooCases(f *file, idx index) ([]*problem, []skip) {
	e, listed := idx[f.stem()]
	t := relative{lowest, lowest}
	if e.Output != nil {
		t.output = *e.Output
	}
	if e.Grad != nil {
		t.gradient = *e.Grad
	}
	p, reason := zooCase(f, e.Group, t)
	if p == nil {
		if listed {
			reason = "group " + e.Group + ": " + reason
		}
		return nil, []skip{{f.stem(), reason}}
	}
	return []*problem{p}, nil
}

// zooGroup reads the files of a group. To add one, write zoo_GROUP.go and list it
// in zooGroups.
type zooGroup struct {
	name   string
	needs  []string // arrays that no other group's files have
	arrays []string // further arrays that they may have, common ones apart
	// read completes p, which has what files of all groups share, and returns why
	// it is not compared, if so.
	read func(r *reader, p *problem) string
	// cases reads files without q, k and v, such as modules; nil: read does.
	cases func(f *file, t relative) (*problem, string)
}

var zooGroups = []zooGroup{
	softmaxGroup,
	linearGroup,
	retentionGroup,
	retnetGroup,
	performerGroup,
	rfaGroup,
	linformerGroup,
	linformerModule,
	fourierGroup,
	localGroup,
	patternsGroup,
	nystromGroup,
	informerGroup,
	lunaGroup,
	evaGroup,
	clusteredGroup,
	exactTopKGroup,
	lshGroup,
	sharedGroup,
	chunkedGroup,
	scatterbrainGroup,
	primalGroup,
	modelGroup,
}

// common are the arrays that files of every group may have.
var common = []string{"q", "k", "v", "causal", "key_lengths", "attn_keep", "out", "go", "d_q", "d_k", "d_v"}

func zooCase(f *file, group string, t relative) (*problem, string) {
	reason := "no mechanism here computes it"
	for _, g := range zooGroups {
		if group != "" && group != g.name || !f.hasArray(g.needs...) {
			continue
		}
		if !f.hasArray("q", "k", "v", "out") {
			if g.cases != nil {
				return g.cases(f, t)
			}
			reason = "no q, k, v and out"
			continue
		}
		if rest := f.unlistedArrays(common, g.needs, g.arrays); len(rest) > 0 {
			reason = "arrays that no mechanism here has: " + strings.Join(rest, ", ")
			continue
		}
		r := &reader{f: f}
		p := newZoo(r, t)
		if reason := g.read(r, p); reason != "" {
			return nil, reason
		}
		return p.finish(r), ""
	}
	return nil, reason
}

// unlistedArrays returns the arrays of f that are in none of the lists.
func (f *file) unlistedArrays(lists ...[]string) []string {
	all := slices.Concat(lists...)
	var rest []string
	for _, n := range f.sortedNames() {
		if !slices.Contains(all, n) {
			rest = append(rest, n)
		}
	}
	return rest
}

// newZoo reads what softmax and linear files share.
func newZoo(r *reader, t relative) *problem {
	p := newProblem(r, r.f.stem())
	p.tolerance = t
	if r.f.hasArray("causal") {
		p.call.Causal = r.truth("causal")
	}
	if r.f.hasArray("key_lengths") {
		p.call.KeyLens = r.ints("key_lengths")
	}
	if r.f.hasArray("attn_keep") {
		p.call.AttnKeep = r.bools("attn_keep")
	}
	p.result(r, "o", "out")
	p.gradients(r, "go", map[string]string{"dq": "d_q", "dk": "d_k", "dv": "d_v"})
	return p
}

// parameters reads learned parameters and their expected gradients. Arrays have the
// names of the mechanism's parameters.
func (p *problem) parameters(r *reader, names ...string) {
	for _, name := range names {
		p.constants(r, name)
		p.result(r, "d"+name, "d_"+name)
	}
}

// constants reads numbers that are not learned.
func (p *problem) constants(r *reader, names ...string) {
	if p.numbers == nil {
		p.numbers = map[string][]float64{}
	}
	for _, name := range names {
		p.numbers[name] = r.floats(name)
	}
}

// wholeForms returns the forms of mechanisms that compute whole heads.
func (p *problem) wholeForms() []string {
	if p.call.Causal {
		return []string{"direct", "step"}
	}
	return []string{"direct"}
}

var softmaxGroup = zooGroup{name: "softmax", needs: []string{"scale"}, arrays: []string{"lse"}, read: func(r *reader, p *problem) string {
	scale := r.scalar("scale")
	p.mechanism, p.options = "softmax", mechanism.Options{Set: map[string]string{"scale": formatNumber(scale)}}
	p.book = oracle.Mechanism{Scale: scale, Exp: true}
	p.result(r, "den", "lse")
	return ""
}}

var linearGroup = zooGroup{name: "linear", arrays: []string{"eps", "den", "state_steps", "state_S", "state_Z"}, read: func(r *reader, p *problem) string {
	if !r.f.hasArray("eps") {
		return productZoo(r, p)
	}
	eps := r.scalar("eps")
	p.mechanism, p.options = "linear", mechanism.Options{Set: map[string]string{"eps": formatNumber(eps)}}
	p.book = oracle.Mechanism{Scale: 1, Map: oracle.EluPlusOne, Coef: []float64{0, 1}, Eps: eps}
	p.result(r, "den", "den")
	p.forms = p.everyForm()
	if r.f.hasArray("state_steps", "state_S", "state_Z") {
		p.moments = linearMoments(r, p.tolerance.(relative))
		p.forms = append(p.forms, "state")
	}
	return ""
}}

func formatNumber(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
