package published

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/array"
)

// Description says what a folder has beside the configuration of its model.
type Description struct {
	Architecture string // as config.json names it, otherwise the family's for the head
	Head         string
	Pooling      *Pooling // nil: the folder has no modules.json
	Tensors      []Tensor // in the order of the files
}

// Pooling says how the vector of a text is made of the rows of its tokens.
type Pooling struct {
	// Kind is mean, cls, max, last, mean_sqrt_len or weighted_mean. Several kinds with + between
	// them give vectors that are joined.
	Kind         string `json:"kind"`
	Dense        []int  `json:"dense,omitempty"` // widths of the linear layers after the pooling
	IsNormalised bool   `json:"normalised"`
	Dimensions   int    `json:"dimensions,omitempty"` // how many numbers of a vector are kept; 0: all
	MaxTokens    int    `json:"max_tokens,omitempty"` // number of tokens to which texts are cut; 0: the model's limit
	Prompt       string `json:"prompt,omitempty"`     // text that is put before each text
	// Prompts holds the texts of all prompts by name.
	Prompts map[string]string `json:"prompts,omitempty"`
}

// Tensor describes a tensor of the files.
type Tensor struct {
	Name, Type string
	Shape      []int
	// Parameters names the parameters of the model that the tensor holds, one after the other or
	// transposed. If there are none, the tensor is used outside the model, or not at all.
	Parameters []string
}

// headTexts describe heads.
var headTexts = map[head]string{
	bodyHead: "none", sequenceHead: "classes of a sequence", tokenHead: "classes of each token",
	maskedHead: "masked words", nextHead: "next tokens",
}

// typeNames are the names of types in files.
var typeNames = map[array.DType]string{
	array.F2: "F16", array.BF16: "BF16", array.F4: "F32", array.F8: "F64", array.I1: "I8",
	array.I4: "I32", array.I8: "I64", array.U1: "U8", array.Bool: "BOOL",
}

// Describe returns the description of the model's folder. It returns an error if the files of the
// pooling are malformed.
func (m *Model) Describe() (*Description, error) {
	d := &Description{Head: headTexts[m.plan.head]}
	for _, row := range families {
		if row.name == m.family {
			d.Architecture = row.architectures[m.plan.head]
		}
	}
	s, err := m.sentence()
	if err != nil && m.plan.head != sequenceHead { // a cross-encoder makes no vectors
		return nil, fmt.Errorf("%s: %w", m.dir, err)
	}
	if err == nil && s.isGiven {
		var kinds []string
		for _, pool := range s.pools {
			for _, row := range poolings {
				if row.member == pool {
					kinds = append(kinds, row.kind)
				}
			}
		}
		d.Pooling = &Pooling{strings.Join(kinds, "+"), s.denseWidths(), s.isNormalised(), s.keeps, s.maxTokens, s.prompts.Texts[s.prompts.Default], s.prompts.Texts}
	}
	for _, x := range m.stored {
		t := Tensor{Name: x.name, Type: typeNames[x.dtype], Shape: x.shape}
		if x.weight != nil {
			t.Parameters = slices.Clone(x.weight.parts)
		}
		d.Tensors = append(d.Tensors, t)
	}
	return d, nil
}

// denseWidths returns the widths of the linear layers after the poolings.
func (s *sentence) denseWidths() (widths []int) {
	for _, x := range s.steps {
		if x.dense != nil {
			widths = append(widths, x.dense.out)
		}
	}
	return widths
}
