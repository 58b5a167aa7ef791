package published

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/farfield-ml/farfield/internal/infile"
)

// activation is a function of the outputs of a head of classes, after the logits.
type activation int

const (
	noActivation      activation = iota // the folder stores none: probabilities by the kind of the head
	sigmoidActivation                   // of each output
)

// sentenceFile has what sentence-transformers stores beside the modules.
const sentenceFile = "config_sentence_transformers.json"

// readActivation returns the activation that the folder applies to the outputs of a classifier of
// sequences. Cross-encoders of sentence-transformers store it as activation_fn in
// config_sentence_transformers.json, in sentence_transformers of config.json, or as
// sbert_ce_default_activation_function. If there is none, a single output gets a sigmoid unless
// problem_type of config.json is regression. readActivation returns an error if the activation is
// not supported, or if the folder puts a prompt before texts by default.
func (m *Model) readActivation() (activation, error) {
	if m.plan.head != sequenceHead {
		return noActivation, nil
	}
	config, err := parseFields(m.text)
	if err != nil {
		return 0, err
	}
	files := []struct {
		file, name string
		f          *fields
	}{
		{sentenceFile, "activation_fn", nil},
		{configFile, "activation_fn", config.object("sentence_transformers")},
		{configFile, "sbert_ce_default_activation_function", config},
	}
	// Without modules.json sentence-transformers does not read the file beside it.
	modules, err := readModules(m.dir)
	if err == nil && modules != nil {
		files[0].f, err = readFields(filepath.Join(m.dir, sentenceFile))
	}
	if err != nil {
		return 0, err
	}
	if config.err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Join(m.dir, configFile), config.err)
	}
	if f := files[0].f; f != nil {
		if name := f.text("default_prompt_name", ""); name != "" {
			if p := f.prompts(); p.Texts[name] != "" {
				f.fail("default_prompt_name", "is %q, a prompt before the texts of a classifier, which is not supported", infile.Shorten(name))
			}
		}
	}
	for _, x := range files {
		if x.f == nil {
			continue
		}
		name := x.f.text(x.name, "")
		a, stored := noActivation, name != ""
		switch short := name[strings.LastIndexByte(name, '.')+1:]; {
		case !stored:
		case !strings.HasPrefix(name, "torch.nn."):
			x.f.fail(x.name, "is %q, supported are those of torch.nn", infile.Shorten(name))
		case short == "Sigmoid":
			a = sigmoidActivation
		case short == "Identity" || short == "Softmax" && m.plan.config.Outputs > 1:
		default:
			x.f.fail(x.name, "is %q, supported are Sigmoid, Identity and, of several outputs, Softmax", infile.Shorten(name))
		}
		if x.f.err != nil {
			return 0, fmt.Errorf("%s: %w", filepath.Join(m.dir, x.file), x.f.err)
		}
		if stored {
			return a, nil
		}
	}
	if m.plan.config.Outputs == 1 && config.text("problem_type", "") != "regression" {
		return sigmoidActivation, nil
	}
	return noActivation, nil
}
