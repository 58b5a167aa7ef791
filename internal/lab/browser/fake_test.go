package browser

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
)

// extend puts a model with classes and attention maps before a server: answers of
// /v1/classify and /v1/maps that the page draws as it draws the server's own.
func extend(t *testing.T, s *server) string {
	t.Helper()
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	proxy.ModifyResponse = func(r *http.Response) error {
		if r.Request.URL.Path != "/v1/models" {
			return nil
		}
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		var list struct {
			Data []struct {
				ID      string         `json:"id"`
				Details map[string]any `json:"farfield"`
			} `json:"data"`
		}
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
		list.Data[0].Details["has_maps"] = true
		list.Data[0].Details["classes"] = []string{"rain", "<i>sun</i>"}
		if text, err = json.Marshal(list); err != nil {
			return err
		}
		r.Body = io.NopCloser(strings.NewReader(string(text)))
		r.ContentLength = int64(len(text))
		r.Header.Del("Content-Length")
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("/", proxy)
	mux.HandleFunc("POST /v1/classify", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"data":[{"index":0,"class":"<i>sun</i>","probabilities":{"rain":0.125,"<i>sun</i>":0.875},"tokens":4,"truncated":true}]}`)
	})
	mux.HandleFunc("POST /v1/maps", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Text  string
			Layer int
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		json.NewEncoder(w).Encode(drawMaps(in.Text, in.Layer))
	})
	fake := httptest.NewServer(mux)
	t.Cleanup(fake.Close)
	return fake.URL
}

// drawMaps answers /v1/maps with two heads over words: one looks near, one far.
func drawMaps(text string, layer int) map[string]any {
	tokens := strings.SplitAfter(text, " ")
	n := len(tokens)
	maps := make([][][]float64, 2)
	for h, reach := range []float64{2, 40} {
		for i := range n {
			row, sum := make([]float64, n), 0.0
			for j := range i + 1 {
				row[j] = math.Exp(float64(j-i) / reach)
				sum += row[j]
			}
			for j := range row {
				row[j] /= sum
			}
			maps[h] = append(maps[h], row)
		}
	}
	return map[string]any{"tokens": tokens, "ids": make([]int, n), "layers": 1, "heads": 2, "layer": layer, "window": 16,
		"maps": maps, "near": []float64{0.9, 0.4}, "far": []float64{0.1, 0.6}, "distance": []float64{1.5, 9}}
}
