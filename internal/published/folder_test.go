package published

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

var write = flag.Bool("write", false, "write testdata")

// tinyConfigs are small configurations of all families.
var tinyConfigs = map[string]string{
	"bert":        `{"architectures":["BertModel"],"model_type":"bert","hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":2,"vocab_size":24,"max_position_embeddings":16,"hidden_act":"gelu","type_vocab_size":2}`,
	"bert_mlm":    `{"architectures":["BertForMaskedLM"],"model_type":"bert","hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2,"vocab_size":20,"max_position_embeddings":16}`,
	"roberta":     `{"architectures":["RobertaForTokenClassification"],"model_type":"roberta","hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2,"vocab_size":20,"max_position_embeddings":18,"type_vocab_size":1,"pad_token_id":1}`,
	"xlm-roberta": `{"architectures":["XLMRobertaForMaskedLM"],"model_type":"xlm-roberta","hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2,"vocab_size":20,"max_position_embeddings":18,"type_vocab_size":1}`,
	"distilbert":  `{"architectures":["DistilBertForSequenceClassification"],"model_type":"distilbert","dim":8,"hidden_dim":12,"n_layers":1,"n_heads":2,"vocab_size":20,"max_position_embeddings":16,"num_labels":3}`,
	"mpnet":       `{"architectures":["MPNetForMaskedLM"],"model_type":"mpnet","hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2,"vocab_size":20,"max_position_embeddings":18}`,
	"modernbert":  `{"architectures":["ModernBertForMaskedLM"],"model_type":"modernbert","hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":2,"vocab_size":20,"local_attention":4,"max_position_embeddings":32}`,
	"gpt2":        `{"architectures":["GPT2LMHeadModel"],"model_type":"gpt2","n_embd":8,"n_layer":1,"n_head":2,"vocab_size":20,"n_positions":16}`,
	"gpt_neox":    `{"architectures":["GPTNeoXForCausalLM"],"model_type":"gpt_neox","hidden_size":16,"intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2,"vocab_size":20,"tie_word_embeddings":false,"rotary_pct":0.25}`,
	"llama":       `{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":20,"rope_theta":500000}`,
	"mistral":     `{"architectures":["MistralForSequenceClassification"],"model_type":"mistral","hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"vocab_size":20,"sliding_window":4}`,
	"qwen2":       `{"architectures":["Qwen2Model"],"model_type":"qwen2","hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":2,"vocab_size":20}`,
	"qwen3":       `{"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":6,"vocab_size":20,"tie_word_embeddings":true}`,
	"gemma":       `{"architectures":["GemmaForCausalLM"],"model_type":"gemma","hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":6,"vocab_size":20}`,
	"phi":         `{"architectures":["PhiForCausalLM"],"model_type":"phi","hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2,"vocab_size":20,"partial_rotary_factor":0.5}`,
	"gemma2":      `{"architectures":["Gemma2ForCausalLM"],"model_type":"gemma2","hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":6,"vocab_size":20,"sliding_window":3,"query_pre_attn_scalar":5,"attn_logit_softcapping":0.5,"final_logit_softcapping":0.75}`,
	"gemma3_text": `{"architectures":["Gemma3ForCausalLM"],"model_type":"gemma3_text","hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":6,"vocab_size":20,"sliding_window":3,"query_pre_attn_scalar":6,"sliding_window_pattern":2,"rope_theta":5000,"rope_local_base_freq":100,"rope_scaling":{"rope_type":"linear","factor":8.0}}`,
	"phi3":        `{"architectures":["Phi3ForCausalLM"],"model_type":"phi3","hidden_size":24,"intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":20,"max_position_embeddings":64,"original_max_position_embeddings":8,"pad_token_id":0,"sliding_window":5,"rope_scaling":{"type":"longrope","short_factor":[1,1.25,1.5],"long_factor":[1.5,3,7]}}`,
	"bart":        `{"architectures":["BartForConditionalGeneration"],"model_type":"bart","d_model":8,"encoder_layers":2,"decoder_layers":1,"encoder_attention_heads":2,"decoder_attention_heads":2,"encoder_ffn_dim":12,"decoder_ffn_dim":12,"vocab_size":20,"max_position_embeddings":16}`,
	"vit":         `{"architectures":["ViTForImageClassification"],"model_type":"vit","hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2,"image_size":8,"patch_size":4,"num_labels":3}`,
}

// writeFolder writes a folder with a configuration and random weights.
func writeFolder(t *testing.T, dir, config string) {
	t.Helper()
	_, p, err := readPlan([]byte(config), 1000)
	if err != nil {
		t.Fatal(err)
	}
	key := rng.New(7)
	var list []*array.Array
	for i, w := range p.weights {
		n := 1
		for _, d := range w.shape {
			n *= d
		}
		data := make([]float32, n)
		for j := range data {
			data[j] = float32(key.Fold(uint64(i)).Normal(uint64(j))) / 4
			if strings.Contains(strings.ToLower(w.name), "norm") && strings.HasSuffix(w.name, ".weight") {
				data[j]++
			}
		}
		a, err := array.New(p.fileName(w.name), data, w.shape...)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	err = atomicfile.Write(filepath.Join(dir, weightsFile), func(w io.Writer) error {
		return safetensors.Write(w, list, map[string]string{"format": "pt"})
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, configFile), []byte(config+"\n"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// tinyInput returns an input for a model: two sequences, the second shorter.
func tinyInput(m *Model) *Input {
	in := &Input{B: 2, N: 6, IDs: []int32{2, 5, 7, 11, 3, 4, 2, 6, 9, 3, 0, 0}, Hidden: true}
	if m.plan.padPosition >= 0 {
		in.IDs[10], in.IDs[11] = int32(m.plan.padPosition), int32(m.plan.padPosition)
	}
	for i := range in.IDs {
		in.Mask = append(in.Mask, i < 10)
	}
	if v := m.plan.vision; v != nil {
		in = &Input{B: 2, Hidden: true}
		for i := range 2 * v.channels * v.size * v.size {
			in.Pixels = append(in.Pixels, float32(i%17)/8-1)
		}
	}
	if s := m.plan.config.RopeScaling; s != nil && s.Kind == model.DynamicScaling {
		in.B, in.IDs, in.Mask = 1, in.IDs[:6], in.Mask[:6] // sequences of other lengths rotate otherwise
	}
	if m.family == "bart" {
		in.DecoderIDs, in.DecoderN = []int32{2, 5, 6, 2, 7, 8}, 3
	}
	return in
}

// TestWriteTiny writes testdata/tiny with the flag -write.
func TestWriteTiny(t *testing.T) {
	t.Parallel()
	if !*write {
		t.Skip("0 folders written: needs -write")
	}
	dir := filepath.Join("..", "..", "pretrained", "testdata", "tiny")
	writeFolder(t, dir, tinyConfigs["bert"])
	words := "[PAD] [UNK] [CLS] [SEP] [MASK] a the cat dog sat ran on in mat rain sun ##s ##ing play walk . , ! ?"
	if err := os.WriteFile(filepath.Join(dir, "vocab.txt"), []byte(strings.ReplaceAll(words, " ", "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}
