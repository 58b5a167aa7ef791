package published

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strconv"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tensor"
)

// Modules of a folder of sentence-transformers.
const (
	modulesFile   = "modules.json"
	poolingFolder = "1_Pooling"
	denseFolder   = "2_Dense"
)

// HasVectorHead reports whether a folder is an encoder with a linear head on its vectors, as WriteLike
// writes it.
func HasVectorHead(dir string) bool {
	_, err := infile.ReadBounded(filepath.Join(dir, denseFolder, configFile), maxConfig)
	return err == nil
}

// VectorClasses returns the names of the classes if the vectors of the model are logits, as in a
// folder that WriteLike wrote for an encoder with a linear head: its last module is linear, and
// id2label of config.json names each of its outputs. It returns nil for other vectors.
func (m *Model) VectorClasses() []string {
	s, err := m.sentence()
	if err != nil || m.plan.head != bodyHead || len(s.steps) == 0 || s.keeps > 0 {
		return nil
	}
	last := s.steps[len(s.steps)-1].dense
	names := map[string]string{}
	f, err := parseFields(m.text)
	if err != nil || last == nil || !f.decode("id2label", "an object of names", &names) || len(names) != last.out {
		return nil
	}
	list := make([]string, last.out)
	for i := range list {
		name, has := names[strconv.Itoa(i)]
		if !has {
			return nil
		}
		list[i] = name
	}
	return list
}

// vectorPools are the poolings of vectors, by the pooling of the model.
var vectorPools = map[model.Pool]string{model.PoolMean: poolMean, model.PoolFirst: poolFirst, model.PoolLast: poolLast}

// vectorBody returns the plan of the family without a head, and config.json for it, for a model whose head is
// linear on pooled vectors, which no family's classifier has. It returns an error if the model is another.
func vectorBody(text []byte, m *model.Model) ([]byte, *plan, error) {
	c := m.Config()
	if c.HeadHidden > 0 || c.Outputs == 0 || c.Parts == 2 || vectorPools[c.Pool] == "" {
		return nil, nil, fmt.Errorf("its head is not linear on vectors of texts")
	}
	text, err := bodyText(text)
	if err != nil {
		return nil, nil, err
	}
	_, p, err := readPlan(text, len(m.Params().All()))
	if err != nil {
		return nil, nil, err
	}
	if p.head != bodyHead {
		return nil, nil, fmt.Errorf("its family has no body without a head")
	}
	c.Context, c.Pool, c.Outputs, c.Loss = p.config.Context, "", 0, ""
	biases := resolveBiases(c)
	biases.Head = false
	c.Bias, c.Biases = false, &biases
	return text, p, compareConfigs(p.config, c)
}

// writeVectorModules writes the modules after the body: the pooling, and the head as a linear layer. Texts have
// at most as many tokens as the model was trained on.
func writeVectorModules(dir string, m *model.Model) error {
	type module struct {
		Index int    `json:"idx"`
		Name  string `json:"name"`
		Path  string `json:"path"`
		Type  string `json:"type"`
	}
	const kinds = "sentence_transformers.models."
	c := m.Config()
	pooling := map[string]any{"word_embedding_dimension": c.Width, poolMean: false, poolFirst: false, poolLast: false, poolMax: false}
	pooling[vectorPools[c.Pool]] = true
	for _, f := range []struct {
		path  string
		value any
	}{
		{filepath.Join(poolingFolder, configFile), pooling},
		{filepath.Join(denseFolder, configFile), map[string]any{
			"in_features": c.Width, "out_features": c.Outputs, "bias": true, "activation_function": "torch.nn.modules.linear.Identity",
		}},
		{lengthFiles[0], map[string]any{"max_seq_length": c.Context, "do_lower_case": false}},
		{modulesFile, []module{{0, "0", "", kinds + "Transformer"}, {1, "1", poolingFolder, kinds + "Pooling"}, {2, "2", denseFolder, kinds + "Dense"}}},
	} {
		path := filepath.Join(dir, f.path)
		if err := atomicfile.MakeFolder(filepath.Dir(path)); err != nil {
			return err
		}
		text, err := json.MarshalIndent(f.value, "", "  ")
		if err != nil {
			return err
		}
		if err := atomicfile.WriteBytes(path, append(text, '\n')); err != nil {
			return err
		}
	}
	var list []*array.Array
	for _, part := range []struct{ name, of string }{{"linear.weight", "head.weight"}, {"linear.bias", "head.bias"}} {
		data, shape := make([]float32, c.Outputs), []int{c.Outputs}
		if p, err := m.Params().Get(part.of); err == nil { // a bias that the model lacks is 0
			data, shape = p.Data, p.Shape
			if w := m.Compressed(part.of); w != nil {
				data = make([]float32, tensor.Size(shape...))
				for i := range shape[0] {
					w.Row(data[i*shape[1]:][:shape[1]], i)
				}
			}
		}
		x, err := array.New(part.name, data, shape...)
		if err != nil {
			return err
		}
		list = append(list, x)
	}
	return atomicfile.Write(filepath.Join(dir, denseFolder, weightsFile), func(w io.Writer) error { return safetensors.Write(w, list, nil) })
}
