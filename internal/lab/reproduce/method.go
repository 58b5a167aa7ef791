package reproduce

import (
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/train"
)

// method is a mechanism with settings, as it stands in tables.
type method struct {
	Label string `json:"-"`
	// change, if not nil, makes what else is its own of a training.
	change func(*train.Config)
	Name   string            `json:"mechanism"`
	Order  int               `json:"order,omitempty"`
	Set    map[string]string `json:"set,omitempty"`
}

var (
	softmax     = method{Label: "softmax", Name: "softmax"}
	linear      = method{Label: "linear", Name: "linear"}
	fastmax1    = method{Label: "fastmax 1, bounded", Name: "fastmax", Order: 1, Set: map[string]string{"bounded": "true"}}
	fastmax2    = method{Label: "fastmax 2", Name: "fastmax", Order: 2, Set: map[string]string{"scale": "1/sqrt(D)"}}
	published2  = method{Label: "fastmax 2, scale 1", Name: "fastmax", Order: 2, Set: map[string]string{"scale": "1"}}
	taylorshift = method{Label: "taylorshift", Name: "taylorshift", Set: map[string]string{"tau": "sqrt(D)"}}
)

// otherMark marks published numbers of another function than the one beside them.
// otherFastmax says how the functions of FAST's tables differ from the labelled ones.
const (
	otherMark    = "†"
	otherFastmax = otherMark + " The paper's Fastmax is another function: rows of mean 0 and deviation 1, scores as they are. Here fastmax 1 bounds rows to length 1, so that no weight is negative, and fastmax 2 divides scores by √D."
)

// contenders are those whose learning is compared.
var contenders = []method{softmax, fastmax1, fastmax2, taylorshift, linear}

// file is a label as part of a file's name.
func (m *method) file() string {
	name := []byte(m.Label)
	for i, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			name[i] = '-'
		}
	}
	return string(name)
}

func (m *method) options(heads, width, length int) mechanism.Options {
	return mechanism.Options{Order: m.Order, Heads: heads, Width: width, Length: length, Set: m.Set}
}
