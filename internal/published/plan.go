package published

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/model"
)

// plan is what config.json says: the configuration of a model and its weights.
type plan struct {
	config  model.Config
	prefix  string   // of the names of the body's weights, without its dot
	written bool     // new files have the prefix
	weights []weight // of the file
	unused  []string // beginnings of names that the architecture leaves out

	head        head
	scores      bool // the model has logits; otherwise its rows are the output
	rawHidden   bool // the last hidden rows are before the last norm
	padPosition int  // id of padding, after which positions count; -1: they begin with 0
	padding     int  // id after the token that a decoder's classes are read at; -1: none
	pooler      bool // tanh units of the first row, beside the model
	vision      *vision

	canLackHead   bool // files may lack the head, or have another one
	hasOwnOutputs bool // outputs of the files are the model's
}

// vision describes the images of a model.
type vision struct{ channels, size, patch int }

// head is the kind of outputs.
type head int

const (
	bodyHead     head = iota // rows of the last layer
	sequenceHead             // classes of a sequence
	tokenHead                // classes of each token
	maskedHead               // masked words
	nextHead                 // next tokens, or the tokens of a target
)

// weight is a tensor of a file: the rows of parameters of a model.
type weight struct {
	name  string   // without the prefix
	shape []int    // in the file
	parts []string // parameters of the model; none: the tensor is beside the model
	// block is the number of rows that belong to one part before the rows of the next;
	// 0: all rows of a part.
	block      int
	rows       []int    // of each part, one part after the other; nil: as block says
	transposed bool     // the file has [in,out]
	aliases    []string // other names under which files repeat the tensor
	optional   bool
	isNew      bool // the files lack the tensor, which is of a new head
}

// families lists the supported values of model_type.
var families = []struct {
	name string
	read func(f *fields, h head) *plan
	// express sets the members of config.json for a model; an error: the family has no
	// such model.
	architectures map[head]string
}{
	{"bert", readBERT, heads("Bert", "ForSequenceClassification ForTokenClassification ForMaskedLM")},
	{"roberta", readRoBERTa, heads("Roberta", "ForSequenceClassification ForTokenClassification ForMaskedLM")},
	{"xlm-roberta", readRoBERTa, heads("XLMRoberta", "ForSequenceClassification ForTokenClassification ForMaskedLM")},
	{"distilbert", readDistilBERT, heads("DistilBert", "ForSequenceClassification ForTokenClassification ForMaskedLM")},
	{"mpnet", readMPNet, heads("MPNet", "ForSequenceClassification ForTokenClassification ForMaskedLM")},
	{"modernbert", readModernBERT, heads("ModernBert", "ForSequenceClassification ForTokenClassification ForMaskedLM")},
	{"gpt2", readGPT2, heads("GPT2", "ForSequenceClassification LMHeadModel")},
	{"gpt_neox", readGPTNeoX, heads("GPTNeoX", "ForSequenceClassification ForCausalLM")},
	{"llama", readLlama, heads("Llama", "ForSequenceClassification ForCausalLM")},
	{"mistral", readMistral, heads("Mistral", "ForSequenceClassification ForCausalLM")},
	{"qwen2", readQwen2, heads("Qwen2", "ForSequenceClassification ForCausalLM")},
	{"qwen3", readQwen3, heads("Qwen3", "ForSequenceClassification ForCausalLM")},
	{"gemma", readGemma, heads("Gemma", "ForSequenceClassification ForCausalLM")},
	{"gemma2", readGemma2, heads("Gemma2", "ForSequenceClassification ForCausalLM")},
	{"gemma3_text", readGemma3, map[head]string{bodyHead: "Gemma3TextModel", sequenceHead: "Gemma3TextForSequenceClassification", nextHead: "Gemma3ForCausalLM"}},
	{"phi", readPhi, heads("Phi", "ForSequenceClassification ForCausalLM")},
	{"phi3", readPhi3, heads("Phi3", "ForSequenceClassification ForCausalLM")},
	{"bart", readBART, heads("Bart", "ForConditionalGeneration")},
	{"vit", readViT, heads("ViT", "ForImageClassification")},
}

// heads returns the names of a family's classes by their heads.
func heads(class, endings string) map[head]string {
	m := map[head]string{bodyHead: class + "Model"}
	for _, e := range strings.Fields(endings) {
		switch e {
		case "ForSequenceClassification", "ForImageClassification":
			m[sequenceHead] = class + e
		case "ForTokenClassification":
			m[tokenHead] = class + e
		case "ForMaskedLM":
			m[maskedHead] = class + e
		default:
			m[nextHead] = class + e
		}
	}
	if class == "Bart" {
		delete(m, bodyHead)
	}
	return m
}

// readPlan reads the text of config.json. tensors is the number of tensors beside it.
func readPlan(text []byte, tensors int) (family string, p *plan, err error) {
	f, err := parseFields(text)
	if err != nil {
		return "", nil, err
	}
	f.hint = ignoreHint
	family = f.text("model_type", "")
	var classes []string
	f.decode("architectures", "a list of names", &classes)
	if f.err != nil {
		return "", nil, f.err
	}
	for i := range families {
		row := &families[i]
		if row.name != family {
			continue
		}
		h, err := findHead(classes, row.architectures)
		if err != nil {
			return "", nil, err
		}
		for _, name := range []string{"num_hidden_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"} {
			if f.has(name) && f.count(name, 0) > tensors {
				return "", nil, fmt.Errorf("%s: is %d, but the files have %d tensors", name, f.count(name, 0), tensors)
			}
			delete(f.read, name)
		}
		p := row.read(f, h)
		checkQuantization(f)
		f.needs("tie_encoder_decoder", "false")
		f.needs("pruned_heads", "{}")
		f.needs("add_cross_attention", "false")
		if p.config.Kind != model.EncoderDecoder {
			f.needs("is_encoder_decoder", "false")
		}
		if p.config.Kind == model.Decoder {
			f.needs("is_decoder", "true", "false")
		} else {
			f.needs("is_decoder", "false")
		}
		if err := f.finish(); err != nil {
			return "", nil, err
		}
		if err := p.config.Validate(); err != nil {
			return "", nil, fmt.Errorf("model: %w", fault.InFile(err))
		}
		return family, p, nil
	}
	var names []string
	for _, row := range families {
		names = append(names, row.name)
	}
	if family == "" {
		return "", nil, fmt.Errorf("model_type: is missing; supported are %s", strings.Join(names, ", "))
	}
	return "", nil, fmt.Errorf("model_type: %q is none of %s", infile.Shorten(family), strings.Join(names, ", "))
}

// readBody is readPlan of the family's architecture without a head. It returns an error where
// readPlan does, and the plan with the head if there is no such architecture.
func readBody(text []byte, tensors int) (family string, p *plan, err error) {
	if text, err = bodyText(text); err != nil {
		return "", nil, err
	}
	return readPlan(text, tensors)
}

// bodyText returns config.json with the family's architecture without a head, if there is one.
func bodyText(text []byte) ([]byte, error) {
	f, err := parseFields(text)
	if err != nil {
		return nil, err
	}
	family := f.text("model_type", "")
	for _, row := range families {
		if name := row.architectures[bodyHead]; row.name == family && name != "" {
			f.set("architectures", []string{name})
		}
	}
	return atomicfile.MarshalJSON(f.values)
}

// findHead returns the head of the architecture. Without architectures it is the body.
func findHead(classes []string, known map[head]string) (head, error) {
	if len(classes) == 0 {
		if _, body := known[bodyHead]; body {
			return bodyHead, nil
		}
		return nextHead, nil
	}
	if len(classes) > 1 {
		return 0, fmt.Errorf("architectures: has %d names, one is supported: %q", len(classes), infile.Shorten(strings.Join(classes, ", ")))
	}
	var names []string
	for h, name := range known {
		if name == classes[0] {
			return h, nil
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return 0, fmt.Errorf("architectures: %q is none of %s", infile.Shorten(classes[0]), strings.Join(names, ", "))
}

// labels returns the number of classes of a head.
func (f *fields) labels() int {
	names := map[string]anyJSON{}
	if f.decode("id2label", "an object", &names) && len(names) > 0 {
		return len(names)
	}
	return f.count("num_labels", 2)
}

// anyJSON is any JSON value, which is left unread.
type anyJSON struct{}

// UnmarshalJSON accepts every value.
func (*anyJSON) UnmarshalJSON([]byte) error { return nil }

// add adds a tensor that is one parameter. Inlined, its copies are a percent of a program.
//
//go:noinline
func (p *plan) add(name, part string, shape ...int) *weight {
	p.weights = append(p.weights, weight{name: name, shape: shape, parts: []string{part}})
	return &p.weights[len(p.weights)-1]
}

// addLinear adds a projection [out,in] and its bias.
func (p *plan) addLinear(name, part string, bias bool, out, in int) {
	p.add(name+".weight", part+".weight", out, in)
	if bias {
		p.add(name+".bias", part+".bias", out)
	}
}

// addNorm adds gain and bias of a norm.
func (p *plan) addNorm(name, part string, bias bool, width int) {
	p.add(name+".weight", part+".weight", width)
	if bias {
		p.add(name+".bias", part+".bias", width)
	}
}

// addBeside adds a projection beside the model.
func (p *plan) addBeside(name string, out, in int) {
	p.weights = append(p.weights,
		weight{name: name + ".weight", shape: []int{out, in}, optional: true},
		weight{name: name + ".bias", shape: []int{out}, optional: true})
}

// aliasOf adds a name under which files repeat a parameter.
func (p *plan) aliasOf(part, name string) {
	for i := range p.weights {
		if w := &p.weights[i]; len(w.parts) == 1 && w.parts[0] == part {
			w.aliases = append(w.aliases, name)
		}
	}
}

// activation returns the activation of a name in config.json.
func (f *fields) activation(name, byDefault string) model.Activation {
	switch a := f.text(name, byDefault); a {
	case "gelu", "gelu_python":
		return model.GELU
	case "gelu_new", "gelu_pytorch_tanh", "gelu_fast":
		return model.TanhGELU
	case "relu":
		return model.ReLU
	case "silu", "swish":
		return model.SiLU
	default:
		f.fail(name, "is %q, supported are gelu, gelu_new, gelu_pytorch_tanh, relu and silu", infile.Shorten(a))
		return model.GELU
	}
}

// headActivation is activation for units before the head.
func (f *fields) headActivation(name, byDefault string) model.Activation {
	a := f.activation(name, byDefault)
	if a == model.SiLU {
		f.fail(name, "is silu, which units before a head do not have")
	}
	return a
}

// gatedActivation is activation for a gated MLP.
func (f *fields) gatedActivation(name, byDefault string) model.Activation {
	switch a := f.activation(name, byDefault); a {
	case model.GELU:
		return model.GEGLU
	case model.TanhGELU:
		return model.TanhGEGLU
	case model.SiLU:
		return model.SwiGLU
	default:
		f.fail(name, "is %s, a gate is silu or gelu", a)
		return model.SwiGLU
	}
}

// divides records an error unless n divides width.
func (f *fields) divides(name string, n, width int) int {
	if n < 1 || width%n != 0 {
		f.fail(name, "%d do not divide width %d", n, width)
		return 1
	}
	return n
}
