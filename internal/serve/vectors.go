package serve

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/tensor"
	"github.com/farfield-ml/farfield/train"
)

// textsRequest holds the fields of requests for results of texts.
type textsRequest struct {
	Model *string         `json:"model"`
	Input json.RawMessage `json:"input"`
}

// readTexts returns the texts of q. It returns an error if q names another model or a text is
// not valid.
func (s *Server) readTexts(ctx context.Context, q *textsRequest) ([]string, error) {
	if err := s.checkModel(q.Model); err != nil {
		return nil, err
	}
	if texts, err := s.decodeInput(ctx, q.Input); texts != nil || err != nil {
		return texts, err
	}
	return s.parseInput(q.Input)
}

// decodeInput returns the texts of ids, or of arrays of them, that this model's tokenizer gives back for these texts.
// It returns nil if data has no ids, and an error for ids of another tokenizer: LangChain sends those of OpenAI's unless
// check_embedding_ctx_length is false.
func (s *Server) decodeInput(ctx context.Context, data json.RawMessage) ([]string, error) {
	var one tokenIDs
	var several []tokenIDs
	switch {
	case json.Unmarshal(data, &one) == nil && len(one) > 0:
		several = []tokenIDs{one}
	case json.Unmarshal(data, &several) != nil || len(several) == 0:
		return nil, nil
	}
	if len(several) > s.o.MaxTexts {
		return nil, badFieldf("input", "has %d texts, at most %d", len(several), s.o.MaxTexts)
	}
	texts := make([]string, len(several))
	for i, ids := range several {
		text, ok, err := s.decodeText(ctx, ids)
		if err != nil {
			return nil, err
		}
		if !ok {
			e := badFieldf(fieldName("input", i), "these ids are not the tokens that this model's tokenizer makes of their text; send texts (in LangChain check_embedding_ctx_length=False), or ids of /v1/tokenize")
			e.Code = "foreign_tokens"
			return nil, e
		}
		texts[i] = text
	}
	return texts, nil
}

// decodeText returns the text whose tokens are ids, with or without special tokens, and whether there is one.
func (s *Server) decodeText(ctx context.Context, ids []int32) (string, bool, error) {
	if s.o.Tokens == nil {
		return "", false, nil
	}
	text, err := textDecoder{tokens: s.o.Tokens}.decode(ids)
	if err != nil { // an id outside the vocabulary
		return "", false, ctx.Err()
	}
	for _, text := range []string{text, strings.TrimPrefix(text, " ")} {
		for _, special := range []bool{true, false} {
			again, err := s.encodeText(ctx, text, special)
			if ctx.Err() != nil {
				return "", false, ctx.Err()
			}
			if err == nil && slices.Equal(again, ids) {
				return text, text != "", nil
			}
		}
	}
	return "", false, nil
}

// embedRequest is the body of /v1/embeddings.
type embedRequest struct {
	textsRequest
	Format     *string         `json:"encoding_format" doc:"float or base64 (float)."`
	Dimensions *int            `json:"dimensions" doc:"Numbers of a vector: its first ones, divided by their length."`
	Prompt     *string         `json:"prompt_name" doc:"Name of a prompt of the folder; an empty text: none (its default)."`
	User       json.RawMessage `json:"user"`
}

// embed answers /v1/embeddings.
func (s *Server) embed(w http.ResponseWriter, r *http.Request) error {
	if s.o.Embedder == nil {
		return s.refuseModel("makes no vectors of texts")
	}
	var q embedRequest
	if err := s.readJSON(w, r, &q); err != nil {
		return err
	}
	if n := s.o.Embedder.Width(); q.Dimensions != nil && (*q.Dimensions < 1 || *q.Dimensions > n) {
		return badFieldf("dimensions", "%d, the vectors of the model have %d", *q.Dimensions, n)
	}
	if names := s.o.Embedder.Prompts().Names(); q.Prompt != nil && *q.Prompt != "" && !slices.Contains(names, *q.Prompt) {
		if len(names) == 0 {
			return badFieldf("prompt_name", "%q, but the model has no prompts", infile.Shorten(*q.Prompt))
		}
		return badFieldf("prompt_name", "%q is none of %s", infile.Shorten(*q.Prompt), strings.Join(names, ", "))
	}
	isBase64 := q.Format != nil && *q.Format == "base64"
	if q.Format != nil && !isBase64 && *q.Format != "float" {
		return badFieldf("encoding_format", "%q is neither float nor base64", *q.Format)
	}
	texts, err := s.readTexts(r.Context(), &q.textsRequest)
	if err != nil {
		return err
	}
	vectors, err := s.gatherer.embed(r.Context(), q.Prompt, texts)
	if err != nil {
		return err
	}
	type object struct {
		Object    string `json:"object"`
		Index     int    `json:"index"`
		Embedding any    `json:"embedding"`
		Tokens    int    `json:"tokens"` // of the text
		Truncated bool   `json:"truncated"`
	}
	data := make([]object, len(vectors))
	var tokens int64
	for i, v := range vectors {
		if v.Values == nil {
			return badFieldf(fieldName("input", i), "has no tokens")
		}
		tokens += int64(v.Tokens)
		if q.Dimensions != nil && *q.Dimensions < len(v.Values) {
			v.Values = published.ShortenVector(v.Values, *q.Dimensions)
		}
		data[i] = object{"embedding", i, v.Values, v.Tokens, v.IsTruncated}
		if v.IsTruncated && s.o.Tokens != nil {
			ids, err := s.encodeText(r.Context(), texts[i], true)
			if err != nil {
				return err
			}
			data[i].Tokens = max(v.Tokens, len(ids))
		}
		if isBase64 {
			data[i].Embedding = encodeVector(v.Values)
		}
	}
	type counts struct {
		Prompt int64 `json:"prompt_tokens"`
		Total  int64 `json:"total_tokens"`
	}
	return s.writeLargeJSON(w, struct {
		Object string   `json:"object"`
		Model  string   `json:"model"`
		Data   []object `json:"data"`
		Usage  counts   `json:"usage"`
		Note   string   `json:"note,omitempty"`
	}{"list", s.o.Name, data, counts{tokens, tokens}, s.o.Card.VectorNote})
}

// encodeVector returns the bytes of a vector in base64, least significant byte first.
func encodeVector(vector []float32) string {
	b := make([]byte, 0, 4*len(vector))
	for _, x := range vector {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}

// parseInput returns the texts of a request. It returns an error if one is empty or if there
// are more than MaxTexts.
func (s *Server) parseInput(data json.RawMessage) ([]string, error) {
	list, err := parseTexts("input", data)
	if err != nil {
		return nil, err
	}
	if len(list) > s.o.MaxTexts {
		return nil, badFieldf("input", "has %d texts, at most %d", len(list), s.o.MaxTexts)
	}
	for i, text := range list {
		if text == "" {
			return nil, badFieldf(fieldName("input", i), "is empty")
		}
	}
	return list, nil
}

// classify answers /v1/classify.
func (s *Server) classify(w http.ResponseWriter, r *http.Request) error {
	if s.o.Classifier == nil {
		return s.refuseModel("predicts no classes of texts")
	}
	var q textsRequest
	if err := s.readJSON(w, r, &q); err != nil {
		return err
	}
	texts, err := s.readTexts(r.Context(), &q)
	if err != nil {
		return err
	}
	results, err := compute(r.Context(), s, func() ([]train.Prediction, error) { return s.o.Classifier.PredictTexts(r.Context(), texts) })
	if err != nil {
		return err
	}
	type object struct {
		Index         int                `json:"index"`
		Class         string             `json:"class"`
		Probabilities map[string]float64 `json:"probabilities"`
		Tokens        int                `json:"tokens"`
		IsTruncated   bool               `json:"truncated"`
	}
	names := s.o.Classifier.ClassNames()
	data := make([]object, len(results))
	for i, c := range results {
		data[i] = object{i, names[c.Class], make(map[string]float64, len(names)), c.Tokens, c.IsTruncated}
		for j, name := range names {
			data[i].Probabilities[name] = c.Probabilities[j]
		}
	}
	return s.writeLargeJSON(w, map[string]any{"object": "list", "model": s.o.Name, "data": data})
}

// maxMapTokens bounds the tokens of maps, which have their square.
const maxMapTokens = 256

// mapsRequest is the body of /v1/maps.
type mapsRequest struct {
	Model *string `json:"model"`
	Layer int     `json:"layer" doc:"Layer, counted from 0 (0)."`
	textInput
}

// drawMaps answers /v1/maps.
func (s *Server) drawMaps(w http.ResponseWriter, r *http.Request) error {
	if s.o.Mapper == nil {
		return s.refuseModel("has no attention maps")
	}
	var q mapsRequest
	if err := s.readJSON(w, r, &q); err != nil {
		return err
	}
	if err := s.checkModel(q.Model); err != nil {
		return err
	}
	ids, err := s.encode(r.Context(), q.textInput, true, s.encodeWhole)
	if err != nil {
		return err
	}
	if len(ids) == 0 || len(ids) > maxMapTokens {
		return badFieldf("text", "has %d tokens, needs 1 to %d", len(ids), maxMapTokens)
	}
	for i, id := range ids {
		if id < 0 || int(id) >= s.o.Card.Vocab {
			return badFieldf("ids", "element %d is %d, the vocabulary has %d tokens", i, id, s.o.Card.Vocab)
		}
	}
	if q.Layer < 0 || q.Layer >= s.o.Card.Layers {
		return badFieldf("layer", "%d is none of the %d, counted from 0", q.Layer, s.o.Card.Layers)
	}
	m, err := compute(r.Context(), s, func() (*inference.LayerMaps, error) { return s.o.Mapper.MapLayer(r.Context(), ids, q.Layer) })
	if err != nil {
		return err
	}
	answer, err := s.describeMaps(m, ids)
	if err != nil {
		return err
	}
	answer.Layer = q.Layer
	return s.writeLargeJSON(w, answer)
}

// mapsAnswer is the JSON of the maps of a layer.
type mapsAnswer struct {
	Tokens    []string      `json:"tokens"`
	IDs       []int32       `json:"ids"`
	Layers    int           `json:"layers"`
	Heads     int           `json:"heads"`
	Layer     int           `json:"layer"`
	Window    int           `json:"window"`   // keys that count as near
	Maps      [][][]float32 `json:"maps"`     // [heads][N][N]
	NearShare []float64     `json:"near"`     // [heads] share of the weight on near keys
	FarShare  []float64     `json:"far"`      // [heads] share of the weight on other keys
	Distance  []float64     `json:"distance"` // [heads] mean distance of a weight, in tokens
}

// describeMaps returns the JSON of maps. It returns an error if a map has another shape.
func (s *Server) describeMaps(m *inference.LayerMaps, ids []int32) (*mapsAnswer, error) {
	n := len(ids)
	a := &mapsAnswer{IDs: ids, Layers: m.Layers, Heads: m.Heads, Window: m.Window}
	for _, id := range ids {
		b, err := s.o.Tokens.Bytes(nil, id)
		if err != nil {
			return nil, err
		}
		text := textDecoder{tokens: s.o.Tokens, rest: b}
		a.Tokens = append(a.Tokens, cmp.Or(text.end(), s.o.Tokens.SpecialToken(id)))
	}
	for h, weights := range m.Weights {
		if len(weights) != n*n {
			return nil, fmt.Errorf("maps: head %d has %d weights, needs %d·%d", h, len(weights), n, n)
		}
		rows := make([][]float32, n)
		for i := range rows {
			rows[i] = weights[i*n : (i+1)*n]
		}
		near := nearShare(rows, m.Window)
		a.Maps, a.NearShare, a.FarShare = append(a.Maps, rows), append(a.NearShare, near), append(a.FarShare, 1-near)
		a.Distance = append(a.Distance, inference.Locate(tensor.Mat{Data: weights, Rows: n, Cols: n, Stride: n}, 0).Distance)
	}
	return a, nil
}

// nearShare returns the mean share of the weights of a row [N] on keys nearer than near.
func nearShare(rows [][]float32, near int) float64 {
	var share, counted float64
	for i, row := range rows {
		var part, all float64
		for j, weight := range row {
			x := math.Abs(float64(weight))
			all += x
			if i-j < near && j-i < near {
				part += x
			}
		}
		if all > 0 {
			share, counted = share+part/all, counted+1
		}
	}
	if counted == 0 {
		return 0
	}
	return share / counted
}
