// Package serve answers HTTP requests with a model: OpenAI's endpoints for embeddings, completions
// and chat, sessions whose states are kept, classification and attention maps.
//
// A Server is an http.Handler. It reaches the model through interfaces, and has no flags and no
// files. It reads bodies of bounded length, refuses unknown fields, and checks Host, Origin and
// keys. Streams are server-sent events. If a client reads slowly, the goroutine that writes to it
// waits, and the model continues.
package serve

import (
	"context"
	"net/http"

	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/sessions"
	"github.com/farfield-ml/farfield/train"
)

// Sessions holds the sessions of one decoder; *sessions.Manager implements it.
type Sessions interface {
	Create(ctx context.Context, ids []int32) (sessions.Info, error)
	Append(ctx context.Context, id string, ids []int32) (sessions.Info, error)
	Generate(ctx context.Context, id string, d sessions.Draw, emit func(token int32) error) (sessions.Result, error)
	Complete(ctx context.Context, ids []int32, d sessions.Draw, emit func(token int32) error) (sessions.Result, error)
	Fork(ctx context.Context, id string) (sessions.Info, error)
	Get(ctx context.Context, id string) (sessions.Info, error)
	List(ctx context.Context) []sessions.Info
	Export(ctx context.Context, id string) ([]byte, error)
	Import(ctx context.Context, data []byte) (sessions.Info, error)
	Delete(ctx context.Context, id string) error
	Tokens(ctx context.Context, id string) (ids []int32, unknown int64, err error)
	Beginning(ctx context.Context, id string) (ids []int32, err error)
	Rewind(ctx context.Context, id string, tokens int64) (sessions.Info, error)
	Stats() sessions.Stats
	// Reserve sets memory aside for other work until Release. It returns an error if the states
	// that must stay leave no room for it.
	Reserve(bytes int64) error
	Release(bytes int64)
}

// Tokens converts text to token ids and back.
type Tokens interface {
	// Encode returns the ids of a text. If special is set, they include the special tokens that
	// begin and end a text. Encode returns an error if the text has an unknown character.
	Encode(text string, special bool) ([]int32, error)
	// EncodeContinuation returns the ids of a text that continues a number of tokens: without
	// special tokens, and without a space that the tokenizer puts before a text. It returns an
	// error where Encode does.
	EncodeContinuation(text string, tokens int64) ([]int32, error)
	// Bytes appends the bytes of a token to dst, and nothing for a special token. It returns an
	// error if id is outside the vocabulary.
	Bytes(dst []byte, id int32) ([]byte, error)
	// SpecialToken returns the name of a special token, such as [CLS], and "" for any other token.
	SpecialToken(id int32) string
}

// Embedder makes vectors of texts. Its methods may be called concurrently.
type Embedder interface {
	// Width returns the number of elements of a vector.
	Width() int
	// MaxTokens returns the number of tokens to which texts are cut.
	MaxTokens() int
	// Prompts returns the prompts of the model's folder.
	Prompts() *published.Prompts
	// Embed returns the vectors of texts, each with the prompt of the given name before it. nil:
	// the folder's default; an empty name: no prompt. Embed returns an *inference.TextError if a
	// text cannot be encoded, and an error if a vector is not finite or ctx ends.
	Embed(ctx context.Context, prompt *string, texts []string) ([]inference.Embedding, error)
}

// Classifier predicts classes of texts. Its methods may be called concurrently.
type Classifier interface {
	// ClassNames returns the names of the classes.
	ClassNames() []string
	// PredictTexts returns the predicted classes of texts. It returns an *inference.TextError if a
	// text cannot be read, and an error if an output is not finite or ctx ends.
	PredictTexts(ctx context.Context, texts []string) ([]train.Prediction, error)
}

// Score is the relevance of a document for a query.
type Score struct {
	Value       float64
	Tokens      int  // tokens of query and document, before they were cut
	IsTruncated bool // query and document were cut
}

// Reranker scores documents for a query, as a cross-encoder does. Its methods may be called
// concurrently.
type Reranker interface {
	// Rerank returns the scores of documents. It returns an *inference.TextError if a document cannot be read, and an
	// error if a score is not finite or ctx ends.
	Rerank(ctx context.Context, query string, documents []string) ([]Score, error)
}

// Mapper computes attention maps. Its methods may be called concurrently.
type Mapper interface {
	// MapLayer returns the maps of a layer for ids [N]. It returns an error if the layer does
	// not exist, an id is outside the vocabulary, or ctx ends.
	MapLayer(ctx context.Context, ids []int32, layer int) (*inference.LayerMaps, error)
}

// Page holds the files of the page that browsers show, such as web.Page.
type Page interface {
	http.Handler
	// HasFile reports whether the page has a file at path.
	HasFile(path string) bool
}

// Card describes the model in the answer to GET /v1/models.
type Card struct {
	Family          string   `json:"family"`
	Kind            string   `json:"kind"`
	Precision       string   `json:"precision"` // how weights are held: f32, bf16 or int8
	Layers          int      `json:"layers"`
	Width           int      `json:"width"`
	Heads           int      `json:"heads"`
	HeadWidth       int      `json:"head_width"`
	KVBytesPerToken int64    `json:"kv_bytes_per_token"` // bytes a token that a cache of keys and values of this shape takes in float32
	State           string   `json:"state"`              // fixed or grows; "": the model has no sessions
	Context         int      `json:"context"`            // most tokens that the positions allow; 0: no limit
	TrainedContext  int      `json:"trained_context"`    // tokens of a training sequence; 0: unknown
	BeyondContext   bool     `json:"beyond_context"`     // texts may be longer than TrainedContext; New sets it to Options.BeyondContext
	MaxTokens       int      `json:"max_tokens"`         // most tokens of one answer; New sets it to Options.MaxTokens
	SessionTokens   int64    `json:"session_tokens"`     // most tokens of a session; 0: no limit; New sets it to Options.MaxSession
	KeepsSessions   bool     `json:"keeps_sessions"`     // sessions survive a restart of the server
	Vocab           int      `json:"vocab"`
	HasSessions     bool     `json:"has_sessions"`
	HasChat         bool     `json:"has_chat"`
	Embeds          bool     `json:"embeds"`
	Dimensions      int      `json:"dimensions,omitempty"`       // elements of a vector
	EmbedTokens     int      `json:"embedding_tokens,omitempty"` // tokens to which texts are cut for vectors
	Prompts         []string `json:"prompts,omitempty"`          // names of the prompts for vectors
	VectorNote      string   `json:"vector_note,omitempty"`      // warning that the vectors of this model say little
	Reranks         bool     `json:"reranks"`
	HasMaps         bool     `json:"has_maps"`
	Classes         []string `json:"classes"`
	// Mechanisms names the attention functions of the layers of an exchanged model; absent for
	// other models.
	Mechanisms []LayerMechanism `json:"mechanisms,omitempty"`
	// KeyDistances holds, for each layer of an exchanged model, the distance between keys and the
	// centres of their cells on the texts of the exchange.
	KeyDistances map[string][]float64 `json:"key_distances,omitempty"`
}

// LayerMechanism names the attention function of a layer.
type LayerMechanism struct {
	Mechanism string            `json:"mechanism"`
	Order     int               `json:"order,omitempty"`
	Set       map[string]string `json:"set,omitempty"`
}
