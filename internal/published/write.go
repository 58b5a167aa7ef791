package published

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tokenizer"
)

// Write writes the model m to the folder dir, which transformers loads to the same outputs, if a
// published family has such a model: config.json, model.safetensors and, unless words is nil,
// tokenizer.json. Biases that the family has and m does not are written as 0. Write creates dir if
// it does not exist. It returns an error that names the differing field if no family has such a
// model, if dir has weights, tokenizer files or files beside them that Write does not replace, or
// if a file cannot be written. It also returns the error of model.Model.CheckMechanisms.
func Write(dir string, m *model.Model, words *tokenizer.Tokenizer) error {
	if err := checkWritable(m); err != nil {
		return err
	}
	text, p, err := express(m.Config())
	if err != nil {
		return err
	}
	err = checkTarget(dir, func(name string) bool {
		return name == fileOf(m.Precision()) || words != nil && (name == "tokenizer.json" || name == tokenizerConfigFile)
	})
	if err != nil {
		return err
	}
	if err := atomicfile.MakeFolder(dir); err != nil {
		return err
	}
	if err := p.write(dir, m); err != nil {
		return err
	}
	if words != nil {
		if err := atomicfile.WriteBytes(filepath.Join(dir, "tokenizer.json"), words.JSON()); err != nil {
			return err
		}
		if err := atomicfile.WriteBytes(filepath.Join(dir, tokenizerConfigFile), []byte("{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}\n")); err != nil {
			return err
		}
	}
	if text, err = setPrecision(text, m.Precision()); err != nil {
		return err
	}
	return atomicfile.WriteBytes(filepath.Join(dir, configFile), text)
}

// write writes the weights of a model to a folder.
func (p *plan) write(dir string, m *model.Model) error {
	var list []fileTensor
	for i := range p.weights {
		w := &p.weights[i]
		if len(w.parts) == 0 {
			continue
		}
		if parts := compressedParts(m, w); parts != nil {
			list = append(list, compressedTensors(p.fileName(w.name), w, parts)...)
			continue
		}
		list = append(list, numbersTensor(p.fileName(w.name), w.shape, m.Precision(), func() ([]float32, error) { return w.gather(m) }))
	}
	return writeTensors(filepath.Join(dir, fileOf(m.Precision())), list)
}

// gather returns the elements of a tensor. A bias that the model lacks is 0.
func (w *weight) gather(m *model.Model) ([]float32, error) {
	rows, cols := w.size()
	parts := make([][]float32, len(w.parts))
	for i, name := range w.parts {
		p, err := m.Params().Get(name)
		if err != nil && strings.HasSuffix(name, ".bias") {
			p, err = &param.Param{Data: make([]float32, w.partSize(i, rows, cols))}, nil
		}
		if err != nil {
			return nil, err
		}
		if len(p.Data) != w.partSize(i, rows, cols) {
			return nil, fmt.Errorf("%s: %s has %d elements, shape %v needs %d", w.name, name, len(p.Data), w.shape, w.partSize(i, rows, cols))
		}
		parts[i] = p.Data
	}
	data := make([]float32, rows*cols)
	w.move(data, 0, parts, true)
	return data, nil
}

// members are the members of a config.json.
type members map[string]any

// express returns config.json of the family that has a model of configuration c, and its
// plan.
func express(c model.Config) ([]byte, *plan, error) {
	names := candidates(c)
	if len(names) == 0 {
		return nil, nil, fmt.Errorf("no family of published transformers has kind %s with positions %s, norm %q and post_norm %t", c.Kind, c.Positions, c.Norm, c.PostNorm)
	}
	var reasons []string
	if c.AttentionNorm {
		reasons = append(reasons, "attention_norm is true, all have false")
	}
	if c.Mechanism != "softmax" {
		reasons = append(reasons, fmt.Sprintf(`mechanism is %q, all have "softmax"`, c.Mechanism))
	}
	if reasons != nil {
		return nil, nil, noFamilyError(reasons)
	}
	for _, family := range names {
		f := describe(family, c)
		h := headOf(c)
		for _, row := range families {
			if row.name == family {
				f["architectures"] = []string{row.architectures[h]}
			}
		}
		f["model_type"], f["dtype"], f["torch_dtype"] = family, "float32", "float32"
		if c.Outputs > 0 && (h == sequenceHead || h == tokenHead) {
			names := make([]string, c.Outputs)
			for i := range names {
				names[i] = "LABEL_" + strconv.Itoa(i)
			}
			f["id2label"], f["label2id"] = describeClasses(names)
		}
		text, err := json.MarshalIndent(f, "", "  ")
		if err != nil {
			return nil, nil, err
		}
		_, p, err := readPlan(text, maxCount)
		if err == nil {
			err = compareConfigs(p.config, c)
		}
		if err == nil {
			return append(text, '\n'), p, nil
		}
		reasons = append(reasons, fmt.Sprintf("%s: %v", family, err))
	}
	return nil, nil, noFamilyError(reasons)
}

func noFamilyError(reasons []string) error {
	return errors.New("no family of published transformers has such a model; " + strings.Join(reasons, "; "))
}

// headOf returns the head of a configuration.
func headOf(c model.Config) head {
	switch {
	case c.Kind == model.EncoderDecoder:
		return nextHead
	case c.Inputs > 0 && c.Outputs == 1 && c.Loss == model.CrossEntropy: // one class is none
		return bodyHead
	case c.Outputs > 0 && c.Pool != "":
		return sequenceHead
	case c.Outputs > 0:
		return tokenHead
	case c.Kind == model.Decoder:
		return nextHead
	case c.HeadHidden > 0:
		return maskedHead
	}
	return bodyHead
}

// candidates lists the families that may have a model of configuration c.
func candidates(c model.Config) []string {
	rms := c.Norm == model.RMSNorm
	switch {
	case c.Kind == model.EncoderDecoder:
		return []string{"bart"}
	case c.Inputs > 0:
		return []string{"vit"}
	case c.Kind == model.Encoder && c.Positions == model.Rotary:
		return []string{"modernbert"}
	case c.Kind == model.Encoder && c.RelativeBuckets > 0:
		return []string{"mpnet"}
	case c.Kind == model.Encoder && c.PositionOffset > 0:
		return []string{"roberta"}
	case c.Kind == model.Encoder && c.TokenTypes == 0:
		return []string{"distilbert"}
	case c.Kind == model.Encoder:
		return []string{"bert"}
	case c.Kind != model.Decoder:
		return nil
	case c.Positions == model.Learned:
		return []string{"gpt2"}
	case rms && c.BranchNorm && c.QKNorm:
		return []string{"gemma3_text"}
	case rms && c.BranchNorm:
		return []string{"gemma2"}
	case rms && c.NormOffset:
		return []string{"gemma"}
	case rms && (c.RopeFraction != 0 && c.RopeFraction != 1 || c.RopeScaling != nil && c.RopeScaling.Kind == model.LongScaling):
		return []string{"phi3", "llama"}
	case rms && c.QKNorm:
		return []string{"qwen3"}
	case rms && slices.ContainsFunc(c.LayerWindows, func(w int) bool { return w > 0 }):
		return []string{"mistral", "qwen2"}
	case rms:
		return []string{"llama", "qwen2"}
	case c.ParallelBlocks == model.ParallelOne:
		return []string{"phi"}
	}
	return []string{"gpt_neox"}
}

// compareConfigs returns an error that names the first field in which the model has of
// a family's.
func compareConfigs(family, c model.Config) error {
	f, err := comparable(family)
	if err != nil {
		return err
	}
	g, err := comparable(c)
	if err != nil {
		return err
	}
	var names []string
	for name := range f {
		names = append(names, name)
	}
	for name := range g {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if a, b := string(f[name]), string(g[name]); a != b {
			return fmt.Errorf("%s is %s, the family has %s", name, orNone(b), orNone(a))
		}
	}
	a, b := resolveBiases(family), resolveBiases(c)
	for _, x := range []struct {
		name     string
		has, may bool
	}{{"qkv", b.QKV, a.QKV}, {"o", b.O, a.O}, {"mlp", b.MLP, a.MLP}, {"norm", b.Norm, a.Norm}, {"head", b.Head, a.Head}, {"head_hidden", b.HeadHidden, a.HeadHidden}} {
		if x.has && !x.may {
			return fmt.Errorf("biases: %s is true, the family has false", x.name)
		}
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// comparable returns the members of a configuration with defaults in place of zeros, and
// without biases and rates of dropout.
func comparable(c model.Config) (map[string]json.RawMessage, error) {
	orInt := func(n *int, byDefault int) {
		if *n == 0 {
			*n = byDefault
		}
	}
	if c.Heads > 0 {
		orInt(&c.HeadWidth, c.Width/c.Heads)
	}
	orInt(&c.KVHeads, c.Heads)
	if len(c.Set) == 0 {
		c.Set = nil
	}
	orInt(&c.Hidden, 4*c.Width)
	orInt(&c.SourceVocab, c.Vocab)
	orInt(&c.SourceLayers, c.Layers)
	if c.PositionTable == 0 && c.Positions == model.Learned {
		c.PositionTable = c.Context + c.PositionOffset
	}
	if c.NormEps == 0 {
		c.NormEps = 1e-5
	}
	if c.RopeTheta == 0 && c.Positions == model.Rotary {
		c.RopeTheta = 10000
	}
	if c.Positions == model.Rotary && c.RopeFraction == 0 {
		c.RopeFraction = 1
	}
	if c.Activation == "" {
		c.Activation = model.TanhGELU
	}
	if c.Norm == "" {
		c.Norm = model.LayerNorm
	}
	if c.HeadHidden > 0 && c.HeadActivation == "" {
		c.HeadActivation = model.ReLU
	}
	if c.Outputs == 0 && c.HeadHidden == 0 && c.Kind == model.Encoder {
		c.Tied = true // a body: its head is not written
	}
	c.Bias, c.Biases, c.Dropout, c.AttentionDropout, c.AttentionDropoutKind = false, nil, 0, 0, ""
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	var f map[string]json.RawMessage
	return f, json.Unmarshal(text, &f)
}

// resolveBiases returns the biases that a configuration has.
func resolveBiases(c model.Config) model.Biases {
	b := biasesAll(c.Bias)
	if c.Biases != nil {
		b = *c.Biases
	}
	if c.Norm == model.RMSNorm {
		b.Norm = false
	}
	if c.HeadHidden == 0 {
		b.HeadHidden = false
	}
	if headOf(c) == bodyHead {
		b.Head = false
	}
	return b
}
