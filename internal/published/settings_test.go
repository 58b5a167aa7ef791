package published

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fieldCase is what transformers makes of a value of a field of config.json.
type fieldCase struct {
	Model   string
	Field   string
	Value   json.RawMessage
	Outcome string    // same, changed or refused
	Outputs []float64 // of changed: some of them, evenly apart
}

// TestFieldsOfConfigurationsChangeWhatTheyChangeInTransformers walks all fields of config.json that
// transformers' configuration classes of the families read, and older ones. A field that changes the
// outputs there changes them here to the same numbers, or is refused by name; one that changes
// nothing there changes nothing here, or is refused by name. lab/peers/transformers_fields.py
// writes testdata/fields.json from folders that the test writes to FARFIELD_FIELDS.
func TestFieldsOfConfigurationsChangeWhatTheyChangeInTransformers(t *testing.T) {
	t.Parallel()
	if root := os.Getenv("FARFIELD_FIELDS"); root != "" {
		for name, config := range tinyConfigs {
			dir := filepath.Join(root, name)
			writeFolder(t, dir, config)
			m, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(fieldInput(m))
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, dir, "input.json", string(text))
		}
	}
	text, err := os.ReadFile("testdata/fields.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []fieldCase
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	base, dirs := map[string][]float32{}, map[string]string{}
	refused, changed, same := 0, 0, 0
	for _, c := range cases {
		if _, made := base[c.Model]; !made {
			dirs[c.Model] = t.TempDir()
			writeFolder(t, dirs[c.Model], tinyConfigs[c.Model])
			m, err := Open(dirs[c.Model])
			if err != nil {
				t.Fatal(err)
			}
			base[c.Model] = fieldOutputs(t, m)
		}
		dir := dirs[c.Model]
		members := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(tinyConfigs[c.Model]), &members); err != nil {
			t.Fatal(err)
		}
		members[c.Field] = c.Value
		config, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, dir, configFile, string(config))
		m, err := Open(dir)
		if err != nil {
			// Some fields contradict others, or the tensors: the error names these.
			names := []string{c.Field, "shape is", "is missing", "the tensor is unknown here", "do not divide", "partial_rotary_factor", "rope_fraction", "pairs of channels are rotated"}
			if !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(err.Error(), name) }) {
				t.Errorf("%s: %s %s: the error does not name the field: %v", c.Model, c.Field, c.Value, err)
			}
			refused++
			continue
		}
		got := fieldOutputs(t, m)
		isSame := slices.Equal(got, base[c.Model])
		switch {
		case c.Outcome == "refused" && !isSame:
			t.Errorf("%s: %s %s: changes the outputs, transformers refuses it", c.Model, c.Field, c.Value)
		case c.Outcome == "same" && !isSame:
			t.Errorf("%s: %s %s: changes the outputs, those of transformers stay", c.Model, c.Field, c.Value)
		case c.Outcome == "changed" && isSame:
			t.Errorf("%s: %s %s: changes nothing, transformers gives other outputs", c.Model, c.Field, c.Value)
		case c.Outcome == "changed":
			compareFields(t, &c, got)
			changed++
		default:
			same++
		}
	}
	t.Logf("compared %d fields: %d refused by name, %d change the outputs alike, %d change nothing", len(cases), refused, changed, same)
}

// compareFields holds outputs to those of transformers.
func compareFields(t *testing.T, c *fieldCase, got []float32) {
	t.Helper()
	most := 0.
	for _, x := range got {
		most = max(most, math.Abs(float64(x)))
	}
	step := max(1, len(got)/8)
	for i, want := range c.Outputs {
		if d := math.Abs(float64(got[i*step]) - want); d > 2e-5*most {
			t.Errorf("%s: %s %s: output %d is %g, in transformers %g", c.Model, c.Field, c.Value, i*step, got[i*step], want)
		}
	}
}

// fieldInput returns an input without padding, by the names that transformers has.
func fieldInput(m *Model) map[string]any {
	in := tinyInput(m)
	if in.Pixels != nil {
		v := m.plan.vision
		images := make([][][][]float32, in.B)
		at := 0
		for i := range images {
			images[i] = make([][][]float32, v.channels)
			for c := range images[i] {
				for range v.size {
					images[i][c] = append(images[i][c], in.Pixels[at:][:v.size])
					at += v.size
				}
			}
		}
		return map[string]any{"pixel_values": images}
	}
	given := map[string]any{"input_ids": [][]int32{in.IDs[:6]}}
	if in.DecoderIDs != nil {
		given["decoder_input_ids"] = [][]int32{in.DecoderIDs[:3]}
	}
	return given
}

// fieldOutputs returns the logits, or the last hidden rows, of fieldInput.
func fieldOutputs(t *testing.T, m *Model) []float32 {
	t.Helper()
	in := tinyInput(m)
	if in.Pixels == nil {
		in.B, in.IDs, in.Mask = 1, in.IDs[:6], nil
		if in.DecoderIDs != nil {
			in.DecoderIDs = in.DecoderIDs[:3]
		}
	}
	out, err := m.Forward(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	a := out.Logits
	if a == nil {
		a = out.LastHidden
	}
	x, err := a.Float32()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestFieldsOfOtherFilesAreAppliedInertOrRefused walks the fields that sentence-transformers reads
// beside config.json.
func TestFieldsOfOtherFilesAreAppliedInertOrRefused(t *testing.T) {
	t.Parallel()
	base := map[string]string{
		"2_Normalize/config.json": `{}`,
		"modules.json": `[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},
			{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},{"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]`,
	}
	const transformer, pooling, normalize = `{"path":"","type":"sentence_transformers.models.Transformer"}`, `{"path":"1_Pooling","type":"sentence_transformers.models.Pooling"}`, `{"path":"2_Normalize","type":"sentence_transformers.models.Normalize"}`
	vector := func(files map[string]string) ([]float32, error) {
		all := maps.Clone(base)
		maps.Copy(all, files)
		v, err := openSentence(t, all).Embed(t.Context(), []string{"the cat sat"})
		if err != nil {
			return nil, err
		}
		return v[0], nil
	}
	want, err := vector(nil)
	if err != nil {
		t.Fatal(err)
	}
	const applied, inert = "applied", "inert"
	for _, c := range []struct{ file, text, outcome string }{
		{"1_Pooling/config.json", `{"pooling_mode":"cls"}`, applied},
		{"1_Pooling/config.json", `{"pooling_mode_cls_token":true}`, applied},
		{"1_Pooling/config.json", `{"pooling_mode":"mean","embedding_dimension":8,"include_prompt":false}`, inert},
		{"1_Pooling/config.json", `{"pooling_mode":"median"}`, "pooling_mode: is"},
		{"1_Pooling/config.json", `{"pooling_mode":["cls","median"]}`, "pooling_mode: is"},
		{"1_Pooling/config.json", `{"pooling_mode":"mean","new":1}`, "new: is 1"},
		{"2_Normalize/config.json", `{"module_input_name":"sentence_embedding","module_output_name":null}`, inert},
		{"2_Normalize/config.json", `{"module_input_name":"token_embeddings"}`, "module_input_name: is"},
		{"2_Normalize/config.json", `{"module_output_name":"token_embeddings"}`, "module_output_name: is"},
		{"2_Normalize/config.json", `{"p":1}`, "p: is 1"},
		{lengthFiles[0], `{"max_seq_length":4}`, applied},
		{lengthFiles[0], `{"max_seq_length":null,"do_lower_case":false,"unpad_inputs":true}`, inert},
		{lengthFiles[0], `{"transformer_task":"feature-extraction","module_output_name":"token_embeddings","modality_config":{"text":{"method":"forward","method_output_name":"last_hidden_state"}},"processing_kwargs":{}}`, inert},
		{lengthFiles[0], `{"transformer_task":"fill-mask"}`, "transformer_task: is"},
		{lengthFiles[0], `{"module_output_name":"sentence_embedding"}`, "module_output_name: is"},
		{lengthFiles[0], `{"modality_config":{"text":{"method":"get_text_features"}}}`, "modality_config.text.method: is"},
		{lengthFiles[0], `{"modality_config":{"text":{"method_output_name":"pooler_output"}}}`, "modality_config.text.method_output_name: is"},
		{lengthFiles[0], `{"modality_config":{"image":{"method":"forward"}}}`, "modality_config.image: is"},
		{lengthFiles[0], `{"processing_kwargs":{"text":{"padding":"max_length"}}}`, "processing_kwargs: is"},
		{lengthFiles[0], `{"query_length":32}`, "query_length: is 32"},
		{lengthFiles[0], `{"document_length":32}`, "document_length: is 32"},
		{lengthFiles[0], `{"query_expansion":{}}`, "query_expansion: is"},
		{lengthFiles[0], `{"model_args":{"torch_dtype":"float16"}}`, "model_args: is"},
		{sentenceFile, `{"prompts":{"query":"a "},"default_prompt_name":"query"}`, applied},
		{sentenceFile, `{"prompts":{"query":"a "},"default_prompt_name":null,"similarity_fn_name":"dot","__version__":{"pytorch":"2.1"},"model_type":"SentenceTransformer"}`, inert},
		{sentenceFile, `{"truncate_dim":0}`, "truncate_dim: is 0"},
		{sentenceFile, `{"model_type":"SparseEncoder"}`, "model_type: is"},
		{sentenceFile, `{"similarity_fn_name":"maxsim"}`, "similarity_fn_name: is"},
		{sentenceFile, `{"new":true}`, "new: is true"},
		{"modules.json", `[` + transformer + `,` + pooling + `]`, applied},
		{"modules.json", `[` + transformer + `,` + normalize + `,` + pooling + `]`, applied},
		{"modules.json", `[` + transformer + `,` + pooling + `,` + normalize + `,` + pooling + `]`, applied},
		{"modules.json", `[` + transformer + `,` + normalize + `]`, "has no Pooling"},
		{"modules.json", `[` + pooling + `,` + normalize + `]`, "module 0 is"},
		{"modules.json", `[{"path":"","type":"custom_st.Transformer"},` + pooling + `]`, `module 0 is "custom_st.Transformer"`},
		{"modules.json", `[` + transformer + `,{"path":"1_Pooling","type":"sentence_transformers.models.Pooling","new":2}]`, "new: is 2"},
		{"modules.json", `[` + transformer + `,` + pooling + `,{"path":"3","type":"sentence_transformers.models.Dense"}]`, "config.json: is missing"},
		{"modules.json", `{"0":3}`, "a JSON array of objects is needed"},
	} {
		got, err := vector(map[string]string{c.file: c.text})
		switch c.outcome {
		case applied, inert:
			if err != nil || slices.Equal(got, want) != (c.outcome == inert) {
				t.Errorf("%s: %s: is not %s: %v", c.file, c.text, c.outcome, err)
			}
		default:
			if err == nil || !strings.Contains(err.Error(), c.outcome) {
				t.Errorf("%s: %s: %v, want %q", c.file, c.text, err, c.outcome)
			}
		}
	}
	if again, err := vector(nil); err != nil || !slices.Equal(again, want) {
		t.Error("vectors of one folder differ")
	}
}

// TestRulesOfGenerationAreAppliedInertOrTold walks generation_config.json, and config.json without
// it.
func TestRulesOfGenerationAreAppliedInertOrTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFolder(t, dir, tinyConfigs["llama"])
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	told := func(want string) {
		t.Helper()
		r, err := m.ReadTextRules()
		if err != nil || strings.Join(r.Unapplied, ", ") != want {
			t.Errorf("%v, %v, want %s", r, err, want)
		}
	}
	told("")
	writeFile(t, dir, configFile, strings.Replace(tinyConfigs["llama"], `"hidden_size"`, `"num_beams":4,"repetition_penalty":null,"hidden_size"`, 1))
	told("num_beams: 4")
	for text, want := range map[string]string{
		`{"do_sample":true,"temperature":0.6,"top_p":0.9,"eos_token_id":[1,2],"bos_token_id":0,"transformers_version":"4.51.0"}`: "",
		`{"repetition_penalty":1.05,"num_beams":1,"no_repeat_ngram_size":3}`:                                                     "no_repeat_ngram_size: 3, repetition_penalty: 1.05",
		`{"repetition_penalty":1.0,"min_length":0,"suppress_tokens":[],"forced_eos_token_id":null}`:                              "",
		`{"new_rule":7}`: "new_rule: 7",
	} {
		writeFile(t, dir, generationFile, text)
		told(want)
	}
	for name, neutral := range generationRules {
		writeFile(t, dir, generationFile, `{"`+name+`":77}`)
		told(name + ": 77")
		for _, value := range neutral {
			writeFile(t, dir, generationFile, `{"`+name+`":`+value+`}`)
			told("")
		}
	}
	for _, name := range inertFields[generationFile] {
		writeFile(t, dir, generationFile, `{"`+name+`":77}`)
		told("")
	}
}

func TestAdaptersBesideAModelAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFolder(t, dir, tinyConfigs["bert"])
	writeFile(t, dir, adapterFile, `{}`)
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), adapterFile) {
		t.Error(err)
	}
}
