package published

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestUnknownAndUnsupportedFieldsAreRefusedByName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ base, old, new, want string }{
		{"bert", `"model_type":"bert"`, `"model_type":"gemma3"`, `model_type: "gemma3"`},
		{"gemma2", `"attn_logit_softcapping":0.5`, `"attn_logit_softcapping":99`, `setting cap=99: needs a number from 0.001 to 64`},
		{"gemma2", `"attn_logit_softcapping":0.5`, `"use_bidirectional_attention":true`, `use_bidirectional_attention: is true`},
		{"gemma2", `"sliding_window":3`, `"sliding_window":null`, `layer_types: layer 0 has a window, but sliding_window is missing`},
		{"gemma3_text", `"rope_theta":5000`, `"rope_parameters":{"rope_theta":5000}`, `rope_parameters.rope_theta: is 5000, but the field is unknown here`},
		{"gemma3_text", `"rope_theta":5000`, `"attn_logit_softcapping":50.0`, `attn_logit_softcapping: is 50.0, which is not supported`},
		{"bert", `"BertModel"`, `"BertForQuestionAnswering"`, `architectures: "BertForQuestionAnswering"`},
		{"bert", `"hidden_act":"gelu"`, `"hidden_act":"mish"`, `hidden_act: is "mish"`},
		{"bert", `"hidden_act":"gelu"`, `"position_embedding_type":"relative_key"`, `position_embedding_type: is "relative_key"`},
		{"bert", `"hidden_act":"gelu"`, `"is_decoder":true`, "is_decoder: is true"},
		{"bert", `"hidden_act":"gelu"`, `"new_trick":3`, "new_trick: is 3"},
		{"bert", `"hidden_act":"gelu"`, `"quantization_config":{"bits":4}`, "quantization_config"},
		{"bert", `"hidden_size":8`, `"hidden_size":"8"`, `hidden_size: is "8"`},
		{"bert", `"hidden_size":8`, `"hidden_size":-8`, "hidden_size: is -8"},
		{"bert", `"num_attention_heads":2`, `"num_attention_heads":3`, "num_attention_heads: 3 do not divide width 8"},
		{"bert", `"num_hidden_layers":2`, `"num_hidden_layers":9999999`, "num_hidden_layers: is 9999999"},
		{"bert", `"vocab_size":24`, `"vocab_size":25`, "shape is [24 8], the configuration needs [25 8]"},
		{"bert", `"num_hidden_layers":2`, `"num_hidden_layers":1`, "the tensor is unknown here"},
		{"bert", `"num_hidden_layers":2`, `"num_hidden_layers":3`, "encoder.layer.2.attention.self.query.weight: is missing"},
		{"bert", `"hidden_size":8`, `"hidden_size":8,"hidden_size":8`, "the key appears twice"},
		{"llama", `"rope_theta":500000`, `"rope_scaling":{"type":"ntk","factor":2}`, `rope_scaling.rope_type: is "ntk"`},
		{"llama", `"rope_theta":500000`, `"rope_parameters":{"rope_type":"longrope","factor":2}`, `rope_parameters.short_factor: is missing`},
		{"llama", `"rope_theta":500000`, `"rope_parameters":{"rope_type":"longrope","factor":2,"short_factor":[1],"long_factor":[1,2]}`, `long_factors has 2 elements, 1 pairs`},
		{"phi3", `{"type":"longrope","short_factor":[1,1.25,1.5],"long_factor":[1.5,3,7]}`, `{"type":"linear","factor":2}`, `rope_scaling: rope_type is linear, phi3 has default and longrope`},
		{"phi", `"partial_rotary_factor":0.5`, `"partial_rotary_factor":0.75`, `partial_rotary_factor: 0.75 of 4 channels are 3`},
		{"llama", `"rope_theta":500000`, `"rope_parameters":{"rope_type":"yarn","factor":2,"mscale":"0.7"}`, `rope_parameters.mscale: is "0.7"`},
		{"llama", `"rope_theta":500000`, `"layer_types":["full_attention","chunked_attention"]`, `layer_types: has "chunked_attention"`},
		{"mpnet", `"hidden_size":8`, `"hidden_size":8,"is_encoder_decoder":true`, "is_encoder_decoder: is true"},
		{"mpnet", `"hidden_size":8`, `"hidden_size":8,"pad_token_id":0`, "pad_token_id: is 0, 1 is supported"},
		{"mpnet", `"hidden_size":8`, `"hidden_size":8,"relative_attention_num_buckets":16`, "relative_attention_num_buckets: is 16, 32 is supported"},
		{"mistral", `"hidden_size":8`, `"hidden_size":8,"partial_rotary_factor":0.5`, "partial_rotary_factor: is 0.5, 1 is supported"},
		{"mistral", `"hidden_size":8`, `"hidden_size":8,"rope_parameters":{"partial_rotary_factor":0.5}`, "partial_rotary_factor: is 0.5, 1 is supported"},
		{"gpt_neox", `"hidden_size":16`, `"hidden_size":16,"rope_theta":500`, "rope_theta: is 500, but rope_parameters or rotary_emb_base have 10000"},
		{"gpt2", `"n_embd":8`, `"n_embd":8,"scale_attn_by_inverse_layer_idx":true`, "scale_attn_by_inverse_layer_idx"},
		{"phi", `"hidden_size":8`, `"hidden_size":8,"qk_layernorm":true`, "qk_layernorm"},
		{"bart", `"d_model":8`, `"d_model":8,"normalize_before":true`, "normalize_before"},
		{"vit", `"patch_size":4`, `"patch_size":3`, "patch_size: 3 does not divide image_size 8"},
	} {
		dir := t.TempDir()
		writeFolder(t, dir, tinyConfigs[c.base])
		text := strings.Replace(tinyConfigs[c.base], c.old, c.new, 1)
		if err := os.WriteFile(filepath.Join(dir, configFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.new, err, c.want)
		}
	}
}

func TestOlderNamesOfWeightsAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFolder(t, dir, tinyConfigs["bert_mlm"])
	path := filepath.Join(dir, weightsFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.ReplaceAll(data, []byte(`LayerNorm.weight"`), []byte(`LayerNorm.gamma" `))
	data = bytes.ReplaceAll(data, []byte(`LayerNorm.bias"`), []byte(`LayerNorm.beta"`))
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err != nil {
		t.Error(err)
	}
}

func TestPicklesAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{configFile: tinyConfigs["bert"], "pytorch_model.bin": "PK"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "pickles can execute code") {
		t.Error(err)
	}
}

func TestIndexNamesFilesOfTheFolderAlone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"weight_map":{"a":"../x.safetensors"}}`:                  "a name of the folder",
		`{"weight_map":{"a":"/etc/x.safetensors"}}`:                "a name of the folder",
		`{"weight_map":{"a":"x.bin"}}`:                             "a name of the folder",
		`{"weight_map":{}}`:                                        "is empty",
		`{"weight_map":null}`:                                      "is missing",
		`{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}`: "the key appears twice",
		`[]`: "a JSON object is needed",
	} {
		if _, err := parseIndex([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestIndexOfManyFilesIsRefusedByItsNumber reads an index with more files than any folder has. Its
// files are counted before they are compared or opened.
func TestIndexOfManyFilesIsRefusedByItsNumber(t *testing.T) {
	t.Parallel()
	listed := map[string]string{}
	for i := range 1 << 14 {
		listed[fmt.Sprint("tensor.", i)] = fmt.Sprintf("model-%06d.safetensors", i%maxShards)
	}
	if files, err := listShards(listed); err != nil || len(files) != maxShards || !slices.IsSorted(files) {
		t.Errorf("%d files, %v", len(files), err)
	}
	for i := range 1 << 14 {
		listed[fmt.Sprint("tensor.", i)] = fmt.Sprintf("model-%06d.safetensors", i)
	}
	if _, err := listShards(listed); err == nil || !strings.Contains(err.Error(), "more than the 4096 files") {
		t.Error(err)
	}
}

func TestModulesAreCountedBeforeTheirFilesAreRead(t *testing.T) {
	t.Parallel()
	list := `[{"path":"","type":"sentence_transformers.models.Transformer"}` + strings.Repeat(`,{"path":"1_Pooling","type":"sentence_transformers.models.Pooling"}`, 20) + `]`
	if _, err := openSentence(t, map[string]string{"modules.json": list}).Embed(t.Context(), []string{"cat"}); err == nil || !strings.Contains(err.Error(), "has 21 modules, at most 16 are read") {
		t.Error(err)
	}
}

// TestErrorsQuoteTheBeginningOfLongNames puts 60 KB in the place of each text that errors quote.
func TestErrorsQuoteTheBeginningOfLongNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 30_000)
	for _, c := range []struct{ base, old, new string }{
		{"bert", `"model_type":"bert"`, `"model_type":"` + long + `"`},
		{"bert", `"BertModel"`, `"` + long + `"`},
		{"bert", `"BertModel"`, `"` + long + `","` + long + `"`},
		{"bert", `"hidden_act":"gelu"`, `"hidden_act":"` + long + `"`},
		{"bert", `"hidden_act":"gelu"`, `"` + long + `":true`},
		{"bert", `"hidden_act":"gelu"`, `"` + long + `":true,"` + long + `":true`},
		{"bert", `"hidden_size":8`, `"hidden_size":"` + long + `"`},
		{"llama", `"rope_theta":500000`, `"rope_parameters":{"rope_type":"` + long + `"}`},
		{"llama", `"rope_theta":500000`, `"rope_parameters":{"` + long + `":7}`},
		{"llama", `"rope_theta":500000`, `"layer_types":["full_attention","` + long + `"]`},
	} {
		dir := t.TempDir()
		writeFolder(t, dir, tinyConfigs[c.base])
		writeFile(t, dir, configFile, strings.Replace(tinyConfigs[c.base], c.old, c.new, 1))
		if _, err := Open(dir); err == nil || len(err.Error()) > 1100 {
			t.Errorf("%.40s: %v", c.new, err)
		}
	}
	for name, text := range map[string]string{
		sentenceFile:            `{"prompts":{},"default_prompt_name":"` + long + `"}`,
		"modules.json":          `[{"path":"","type":"` + long + `"}]`,
		"1_Pooling/config.json": `{"pooling_mode_` + long + `":true}`,
		lengthFiles[0]:          `{"max_seq_length":"` + long + `"}`,
	} {
		if _, err := openSentence(t, map[string]string{name: text}).Embed(t.Context(), []string{"cat"}); err == nil || len(err.Error()) > 1100 {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir := t.TempDir()
	writeFolder(t, dir, tinyConfigs["bert"])
	if err := os.Remove(filepath.Join(dir, weightsFile)); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`{"weight_map":{"a":"` + long + `"}}`, `{"weight_map":{"` + long + `":"x"}}`, `{"weight_map":{"a":"` + long + `.safetensors"}}`} {
		writeFile(t, dir, indexFile, text)
		if _, err := Open(dir); err == nil || len(err.Error()) > 1100 {
			t.Errorf("%.40s: %v", text, err)
		}
	}
}

func FuzzConfig(f *testing.F) {
	for _, text := range tinyConfigs {
		f.Add([]byte(text))
	}
	f.Add([]byte(`{"model_type":"modernbert","rope_parameters":{"full_attention":{"rope_theta":1e300}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, p, err := readPlan(text, 64); err == nil {
			for i := range p.weights {
				w := &p.weights[i]
				for _, n := range w.shape {
					if n < 1 {
						t.Errorf("%s: shape %v", w.name, w.shape)
					}
				}
			}
		}
	})
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":4},"weight_map":{"a":"model-00001-of-00002.safetensors"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		listed, err := parseIndex(text)
		for name, file := range listed {
			if err == nil && filepath.Base(file) != file {
				t.Errorf("%s: %q leaves the folder", name, file)
			}
		}
	})
}

// FuzzFolder opens a folder with any configuration and any file of weights. It needs a short
// -fuzzminimizetime: by default each new input of some kilobytes is made smaller for a minute,
// and these runs are not counted.
func FuzzFolder(f *testing.F) {
	weights, err := os.ReadFile("../../pretrained/testdata/tiny/model.safetensors")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(tinyConfigs["bert"]), weights)
	f.Add([]byte(tinyConfigs["llama"]), weights[:len(weights)/2])
	f.Fuzz(func(t *testing.T, config, weights []byte) {
		dir := t.TempDir()
		for name, text := range map[string][]byte{configFile: config, weightsFile: weights} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if m, err := Open(dir); err == nil {
			_, _ = m.Forward(t.Context(), tinyInput(m))
		}
	})
}

func TestInputWithoutTargetIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFolder(t, dir, tinyConfigs["bart"])
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	in := tinyInput(m)
	in.DecoderIDs, in.DecoderN = nil, 0
	if _, err := m.Forward(context.Background(), in); err == nil || err.Error() != "decoder_input_ids: is missing, bart has a target" {
		t.Errorf("error %v", err)
	}
}
