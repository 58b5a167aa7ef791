package published

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/model"
)

func TestMain(m *testing.M) {
	suite.KeepFilesInMemory()
	suite.CollectRarely()
	exchange.MostTimed = 512
	m.Run()
}

func TestFieldsOfPublishedFoldersAreRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ base, fields string }{
		{"llama", `"is_llama_config":true,"rope_interleaved":false,"transformers.js_config":{"dtype":"q4"},"sliding_window":null`},                                                      // SmolLM2
		{"modernbert", `"layer_norm_eps":1e-5,"position_embedding_type":"absolute"`},                                                                                                    // ModernBERT-base
		{"gpt2", `"n_special":0,"predict_special_tokens":true`},                                                                                                                         // gpt2-medium
		{"qwen2", `"use_mrope":false,"use_sliding_window":false,"sliding_window":32768`},                                                                                                // Qwen2.5-0.5B
		{"bert", `"sbert_ce_default_activation_function":"torch.nn.modules.linear.Identity"`},                                                                                           // ms-marco-MiniLM
		{"phi3", `"attention_bias":false,"embd_pdrop":0.0,"resid_pdrop":0.0,"auto_map":{"AutoModelForCausalLM":"modeling_phi3.Phi3ForCausalLM"}`},                                       // Phi-3.5-mini
		{"gemma2", `"hidden_act":"gelu_pytorch_tanh","hidden_activation":"gelu_pytorch_tanh","cache_implementation":"hybrid"`},                                                          // gemma-2-2b
		{"gemma3_text", `"cache_implementation":"hybrid","attn_logit_softcapping":null,"final_logit_softcapping":null,"_sliding_window_pattern":2,"use_bidirectional_attention":false`}, // gemma-3-1b
		{"llama", `"pruned_heads":{},"add_cross_attention":false,"tie_encoder_decoder":false,"is_encoder_decoder":false,"typical_p":1.0`},
	} {
		text := tinyConfigs[c.base][:len(tinyConfigs[c.base])-1] + "," + c.fields + "}"
		if _, _, err := readPlan([]byte(text), 100); err != nil {
			t.Errorf("%s: %v", c.fields, err)
		}
	}
}

func TestMissingWindowsAreTheDefault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		base, fields string
		want         []int // nil: none
		err          string
	}{
		{"mistral", ``, []int{4096}, ""},
		{"mistral", `"sliding_window":null`, nil, ""},
		{"mistral", `"sliding_window":3`, []int{3}, ""},
		{"mistral", `"sliding_window":3,"layer_types":["full_attention"]`, nil, "layer_types: no layer has a window"},
		{"qwen2", `"use_sliding_window":true,"max_window_layers":0`, []int{4096}, ""},
		{"qwen2", `"use_sliding_window":true,"max_window_layers":0,"sliding_window":null`, nil, ""},
		{"qwen2", `"max_window_layers":0,"sliding_window":5`, nil, ""},
	} {
		text := strings.Replace(tinyConfigs[c.base], `,"sliding_window":4`, "", 1)
		text = text[:len(text)-1]
		if c.fields != "" {
			text += "," + c.fields
		}
		_, p, err := readPlan([]byte(text+"}"), 100)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s %s: %v, want %q", c.base, c.fields, err, c.err)
			}
			continue
		}
		if err != nil || !slices.Equal(p.config.LayerWindows, c.want) {
			t.Errorf("%s %s: %v, want %v", c.base, c.fields, err, c.want)
		}
	}
}

// The older names of LongRoPE, and the original context beside it or 4096, are of phi3 alone.
func TestOlderNamesOfScaledRotationsAreRead(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"su", "yarn", "longrope"} {
		text := strings.Replace(tinyConfigs["phi3"], `"type":"longrope"`, `"type":"`+name+`"`, 1)
		_, p, err := readPlan([]byte(text), 100)
		if err != nil || p.config.RopeScaling.Kind != model.LongScaling || p.config.RopeScaling.OriginalContext != 8 || p.config.RopeScaling.Factor != 8 {
			t.Errorf("%s: %v", name, err)
		}
	}
	text := strings.Replace(tinyConfigs["phi3"], `"original_max_position_embeddings":8,`, "", 1)
	if _, p, err := readPlan([]byte(text), 100); err != nil || p.config.RopeScaling.OriginalContext != 4096 {
		t.Error(err)
	}
	text = tinyConfigs["llama"][:len(tinyConfigs["llama"])-1] + `,"rope_scaling":{"type":"su","short_factor":[1],"long_factor":[2]}}`
	if _, _, err := readPlan([]byte(text), 100); err == nil || !strings.Contains(err.Error(), `rope_type: is "su"`) {
		t.Error(err)
	}
}

func TestTwoDialectsOfRotationsAreRefusedUnlessEqual(t *testing.T) {
	t.Parallel()
	text := tinyConfigs["llama"][:len(tinyConfigs["llama"])-1]
	const linear = `{"rope_type":"linear","factor":4.0}`
	if _, p, err := readPlan([]byte(text+`,"rope_parameters":`+linear+`,"rope_scaling":`+linear+"}"), 100); err != nil || p.config.RopeScaling.Factor != 4 {
		t.Errorf("equal ones: %v", err)
	}
	_, _, err := readPlan([]byte(text+`,"rope_parameters":{"rope_type":"default"},"rope_scaling":`+linear+"}"), 100)
	if err == nil || !strings.Contains(err.Error(), "rope_scaling: is "+linear) {
		t.Errorf("different ones: %v", err)
	}
}

// classLogits returns the logits of a tiny classifier for sequences of n tokens, as text.
func classLogits(t *testing.T, config string, n int, mask []bool, ids ...int32) (string, error) {
	t.Helper()
	dir := t.TempDir()
	writeFolder(t, dir, config)
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.Forward(t.Context(), &Input{B: len(ids) / n, N: n, IDs: ids, Mask: mask})
	if err != nil {
		return "", err
	}
	x, err := out.Logits.Float32()
	return fmt.Sprint(x), err
}

func TestClassesOfDecodersReadTheLastTokenThatIsNotPadding(t *testing.T) {
	t.Parallel()
	mistral := strings.Replace(tinyConfigs["mistral"], "{", `{"pad_token_id":5,`, 1)
	gemma := strings.Replace(tinyConfigs["gemma"], "GemmaForCausalLM", "GemmaForSequenceClassification", 1)
	for _, c := range []struct {
		config       string
		ids, shorter []int32
		mask         []bool
	}{
		{mistral, []int32{7, 3, 5}, []int32{7, 3}, nil},
		{mistral, []int32{7, 5, 3, 5}, []int32{7, 5, 3}, []bool{true, true, true, true}},
		{mistral, []int32{5, 5, 5}, []int32{5}, nil},
		{gemma, []int32{7, 3, 0, 0}, []int32{7, 3}, nil},
	} {
		got, err := classLogits(t, c.config, len(c.ids), c.mask, c.ids...)
		want, short := classLogits(t, c.config, len(c.shorter), nil, c.shorter...)
		if got != want || err != nil || short != nil {
			t.Errorf("%v: %s, %v; without padding %s, %v", c.ids, got, err, want, short)
		}
	}
	want := "attention_mask: masks token 2 of sequence 0, the last that is not pad_token_id 5, whose row the head reads"
	if _, err := classLogits(t, mistral, 3, []bool{true, true, false}, 7, 3, 4); err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
	want = "attention_mask: masks the first token of sequence 1, whose row the head reads"
	if _, err := classLogits(t, tinyConfigs["distilbert"], 2, []bool{true, true, false, true}, 7, 3, 4, 6); err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
}

// TestBodiesWithTheNameOfAMaskedHeadAreOpened opens folders such as all-mpnet-base-v2's, whose
// config.json is the base model's.
func TestBodiesWithTheNameOfAMaskedHeadAreOpened(t *testing.T) {
	t.Parallel()
	for base, class := range map[string]string{"mpnet": "MPNet", "bert_mlm": "Bert", "xlm-roberta": "XLMRoberta", "modernbert": "ModernBert"} {
		dir := t.TempDir()
		config := tinyConfigs[base]
		writeFolder(t, dir, strings.Replace(config, class+"ForMaskedLM", class+"Model", 1))
		body, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, configFile), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := Open(dir)
		if err != nil {
			t.Errorf("%s: %v", base, err)
			continue
		}
		if m.HasLogits() || !slices.Equal(outputs(t, m), outputs(t, body)) {
			t.Errorf("%s: outputs differ", base)
		}
		to := t.TempDir()
		if err := m.Save(to); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(filepath.Join(to, configFile)); err != nil || string(text) != config {
			t.Errorf("%s: config.json is %s, %v", base, text, err)
		}
	}
}
