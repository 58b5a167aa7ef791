// Package serve answers HTTP requests with a model: OpenAI's embeddings, completions and chat,
// sessions whose states are kept, classes and attention maps.
//
// A Server is an http.Handler over interfaces, without flags and without files. It reads bounded
// bodies, refuses unknown fields, and checks Host, Origin and keys. A stream is server-sent events.
// Its writer waits for a slow client; the model does not.
package serve

import (
	"context"
	"net/http"

	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/sessions"
	"github.com/farfield-ml/farfield/pretrained"
	"github.com/farfield-ml/farfield/train"
)

// Sessions holds the sessions of one decoder, such as *sessions.Manager.
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
	// Reserve counts memory of other work beside the states until Release. It returns an error if the states that
	// have to stay leave no room for it.
	Reserve(bytes int64) error
	Release(bytes int64)
}

// Tokens converts text to token ids and back.
type Tokens interface {
	// Encode returns the ids of a text, with the special tokens that begin and end a text
	// if special is set. It returns an error if the text has an unknown character.
	Encode(text string, special bool) ([]int32, error)
	// EncodeContinuation returns the ids of text behind a number of tokens, without special
	// tokens. A space that begins a text is not added to a text that goes on. It returns an
	// error where Encode does.
	EncodeContinuation(text string, tokens int64) ([]int32, error)
	// Bytes appends the bytes of a token to dst. A special token has none. It returns an
	// error if id is outside the vocabulary.
	Bytes(dst []byte, id int32) ([]byte, error)
	// SpecialToken returns the name of a special token, such as [CLS]; "": it is none.
	SpecialToken(id int32) string
}

// Embedder makes vectors of texts. It is safe for concurrent use.
type Embedder interface {
	// Width returns the numbers of a vector.
	Width() int
	// MaxTokens returns the tokens of a text that are read.
	MaxTokens() int
	// Prompts returns the prompts that the model's folder has.
	Prompts() *pretrained.Prompts
	// Embed returns the vectors of texts behind the prompt of a name, which Prompts has. nil:
	// behind the folder's default; an empty name: without a prompt. Embed returns a
	// *inference.TextError
	// if a text cannot be encoded, and an error if a vector is not finite or ctx ends.
	Embed(ctx context.Context, prompt *string, texts []string) ([]inference.Embedding, error)
}

// Classifier predicts the classes of texts. It is safe for concurrent use.
type Classifier interface {
	// ClassNames returns the names of the classes.
	ClassNames() []string
	// PredictTexts returns the predictions for texts, which are classes. It returns an
	// *inference.TextError if a text cannot be read, and an error if an output is not finite or ctx ends.
	PredictTexts(ctx context.Context, texts []string) ([]train.Prediction, error)
}

// Score is the relevance of a document for a query.
type Score struct {
	Value       float64
	Tokens      int  // of both, before they were cut
	IsTruncated bool // they have more tokens than are read
}

// Reranker scores documents for a query, as a cross-encoder does. It is safe for concurrent use.
type Reranker interface {
	// Rerank returns the scores of documents. It returns an *inference.TextError if a document cannot be read, and an
	// error if a score is not finite or ctx ends.
	Rerank(ctx context.Context, query string, documents []string) ([]Score, error)
}

// Mapper computes attention maps. It is safe for concurrent use.
type Mapper interface {
	// MapLayer returns the maps of a layer for ids [N]. It returns an error if the layer does
	// not exist, an id is outside the vocabulary, or ctx ends.
	MapLayer(ctx context.Context, ids []int32, layer int) (*inference.LayerMaps, error)
}

// Page is a page of files, such as web.Page.
type Page interface {
	http.Handler
	// HasFile reports whether the page has a file at path.
	HasFile(path string) bool
}

// Card describes the model, as GET /v1/models prints it.
type Card struct {
	Family          string   `json:"family"`
	Kind            string   `json:"kind"`
	Precision       string   `json:"precision"` // of the weights: f32, bf16 or int8
	Layers          int      `json:"layers"`
	Width           int      `json:"width"`
	Heads           int      `json:"heads"`
	HeadWidth       int      `json:"head_width"`
	KVBytesPerToken int64    `json:"kv_bytes_per_token"` // of a softmax cache of this shape in float32
	State           string   `json:"state"`              // fixed or grows; "": no sessions
	Context         int      `json:"context"`            // tokens that positions allow; 0: no limit
	TrainedContext  int      `json:"trained_context"`    // tokens that the model was trained with; 0: unknown
	BeyondContext   bool     `json:"beyond_context"`     // texts may be longer; New sets it to Options.BeyondContext
	MaxTokens       int      `json:"max_tokens"`         // of one answer; New sets it to Options.MaxTokens
	SessionTokens   int64    `json:"session_tokens"`     // of a session; 0: no limit; New sets it to Options.MaxSession
	KeepsSessions   bool     `json:"keeps_sessions"`     // they survive a restart of the server
	Vocab           int      `json:"vocab"`
	HasSessions     bool     `json:"has_sessions"`
	HasChat         bool     `json:"has_chat"`
	Embeds          bool     `json:"embeds"`
	Dimensions      int      `json:"dimensions,omitempty"`       // of a vector
	EmbedTokens     int      `json:"embedding_tokens,omitempty"` // of a text that its vector reads
	Prompts         []string `json:"prompts,omitempty"`          // names of the prompts that vectors may have
	VectorNote      string   `json:"vector_note,omitempty"`      // what vectors of this model mean little for
	Reranks         bool     `json:"reranks"`
	HasMaps         bool     `json:"has_maps"`
	Classes         []string `json:"classes"`
	// Mechanisms are the functions of the layers of an exchanged model; absent: they have their own.
	Mechanisms []LayerMechanism `json:"mechanisms,omitempty"`
	// KeyDistances are the distances of keys from the centres of their cells that the calibration of
	// an exchanged model saw, by layers.
	KeyDistances map[string][]float64 `json:"key_distances,omitempty"`
}

// LayerMechanism is the function of a layer.
type LayerMechanism struct {
	Mechanism string            `json:"mechanism"`
	Order     int               `json:"order,omitempty"`
	Set       map[string]string `json:"set,omitempty"`
}
