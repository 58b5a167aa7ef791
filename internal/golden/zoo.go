package golden

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

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
	data, err := os.ReadFile(path)
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

func zooCase(f *file, group string, t relative) (*problem, string) {
	known := []string{"q", "k", "v", "causal", "key_lengths", "attn_keep", "out", "go", "d_q", "d_k", "d_v"}
	softmax := append([]string{"scale", "lse"}, known...)
	linear := append([]string{"eps", "den", "state_steps", "state_S", "state_Z"}, known...)
	switch {
	case isRetention(f):
		return retentionZoo(f, t), ""
	case group != "" && group != "softmax" && group != "linear":
		return nil, "no mechanism here computes it"
	case !f.has("q", "k", "v", "out"):
		return nil, "no q, k, v and out"
	case f.has("scale") && f.only(softmax):
		return softmaxZoo(f, t), ""
	case f.has("eps") && f.only(linear):
		return linearZoo(f, t), ""
	case f.only(known):
		return nil, "no mechanism here sums without feature map and denominator"
	}
	return nil, "arrays that no mechanism here has: " + strings.Join(f.beyond(softmax, linear), ", ")
}

// only reports whether every array of f is among names.
func (f *file) only(names []string) bool { return len(f.beyond(names)) == 0 }

// beyond returns the arrays of f that are in none of the lists.
func (f *file) beyond(lists ...[]string) []string {
	all := slices.Concat(lists...)
	var rest []string
	for _, n := range f.sorted() {
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
	if r.f.has("causal") {
		p.call.Causal = r.truth("causal")
	}
	if r.f.has("key_lengths") {
		p.call.KeyLens = r.ints("key_lengths")
	}
	if r.f.has("attn_keep") {
		p.call.AttnKeep = r.bools("attn_keep")
	}
	p.result(r, "o", "out")
	p.gradients(r, "go", map[string]string{"dq": "d_q", "dk": "d_k", "dv": "d_v"})
	return p
}

func softmaxZoo(f *file, t relative) *problem {
	r := &reader{f: f}
	p := newZoo(r, t)
	scale := r.scalar("scale")
	p.mechanism, p.options = "softmax", mechanism.Options{Set: map[string]string{"scale": number(scale)}}
	p.book = oracle.Mechanism{Scale: scale, Exp: true}
	p.result(r, "den", "lse")
	return p.done(r)
}

func linearZoo(f *file, t relative) *problem {
	r := &reader{f: f}
	p := newZoo(r, t)
	eps := r.scalar("eps")
	p.mechanism, p.options = "linear", mechanism.Options{Set: map[string]string{"eps": number(eps)}}
	p.book = oracle.Mechanism{Scale: 1, Map: oracle.EluPlusOne, Coef: []float64{0, 1}, Eps: eps}
	p.result(r, "den", "den")
	p.forms = p.everyForm()
	if f.has("state_steps", "state_S", "state_Z") {
		p.moments = linearMoments(r, t)
		p.forms = append(p.forms, "state")
	}
	return p.done(r)
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
