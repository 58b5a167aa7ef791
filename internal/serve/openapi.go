package serve

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/farfield-ml/farfield/internal/atomicfile"
)

// operation describes an endpoint for programs that read OpenAPI.
type operation struct {
	method, path, summary string
	request               any    // value of the type of its body; nil: none
	query                 string // name of a parameter of its address; "": none
}

// operations describe the endpoints, in the order of docs/serve.md.
var operations = []operation{
	{"GET", "/v1/models", "List the model under its names.", nil, ""},
	{"GET", "/v1/models/{id}", "Describe the model.", nil, ""},
	{"POST", "/v1/completions", "Continue prompts.", completionRequest{}, ""},
	{"POST", "/v1/chat/completions", "Answer a conversation.", chatRequest{}, ""},
	{"POST", "/v1/embeddings", "Make vectors of texts.", embedRequest{}, ""},
	{"POST", "/v1/rerank", "Score documents for a query.", rerankRequest{}, ""},
	{"POST", "/v1/classify", "Predict the classes of texts.", textsRequest{}, ""},
	{"POST", "/v1/maps", "Compute attention maps of a layer.", mapsRequest{}, ""},
	{"POST", "/v1/tokenize", "Return the tokens of a text, or the text of tokens.", tokenizeRequest{}, ""},
	{"GET", "/v1/sessions", "List sessions, and with begin return the text of their first tokens.", nil, "begin"},
	{"POST", "/v1/sessions", "Create a session of a text.", createRequest{}, ""},
	{"POST", "/v1/sessions/import", "Create a session of a snapshot, whose bytes are the body.", nil, ""},
	{"GET", "/v1/sessions/{id}", "Describe a session, and with text return its text and ids.", nil, "text"},
	{"DELETE", "/v1/sessions/{id}", "Delete a session.", nil, ""},
	{"POST", "/v1/sessions/{id}/append", "Let a session read more.", textInput{}, ""},
	{"POST", "/v1/sessions/{id}/generate", "Continue a session, which then holds the tokens.", generateRequest{}, ""},
	{"POST", "/v1/sessions/{id}/fork", "Create a second session of the same tokens.", nil, ""},
	{"POST", "/v1/sessions/{id}/rewind", "Leave the first tokens of a session alone.", rewindRequest{}, ""},
	{"GET", "/v1/sessions/{id}/export", "Return a snapshot of a session.", nil, ""},
	{"GET", "/healthz", "Say that the process answers.", nil, ""},
	{"GET", "/health", "Say that the process answers.", nil, ""},
	{"GET", "/readyz", "Say whether requests are answered.", nil, ""},
	{"GET", "/metrics", "Return counts and times for Prometheus.", nil, ""},
	{"GET", "/openapi.json", "Return this description.", nil, ""},
	{"GET", "/", "Show the page of the server.", nil, ""},
}

// jsonObject is an object of a description.
type jsonObject = map[string]any

// describeAPI returns the description of all endpoints in OpenAPI 3.1.
func describeAPI() ([]byte, error) {
	paths := jsonObject{}
	for _, o := range operations {
		answer := "The answer."
		if o.method == "DELETE" {
			answer = "It is deleted."
		}
		entry := jsonObject{"summary": o.summary, "responses": jsonObject{"2XX": jsonObject{"description": answer}, "default": jsonObject{"$ref": "#/components/responses/Error"}}}
		if o.request != nil {
			entry["requestBody"] = jsonObject{"content": jsonObject{"application/json": jsonObject{"schema": describeSchema(reflect.TypeOf(o.request))}}}
		}
		var parameters []any
		if strings.Contains(o.path, "{id}") {
			parameters = append(parameters, jsonObject{"name": "id", "in": "path", "required": true, "schema": jsonObject{"type": "string"}})
		}
		if o.query != "" {
			parameters = append(parameters, jsonObject{"name": o.query, "in": "query", "allowEmptyValue": true, "schema": jsonObject{"type": "string"}})
		}
		if parameters != nil {
			entry["parameters"] = parameters
		}
		if paths[o.path] == nil {
			paths[o.path] = jsonObject{}
		}
		paths[o.path].(jsonObject)[strings.ToLower(o.method)] = entry
	}
	text := jsonObject{"type": "string"}
	orNull := jsonObject{"type": []string{"string", "null"}}
	return atomicfile.MarshalJSON(jsonObject{
		"openapi":  "3.1.0",
		"info":     jsonObject{"title": "farfield serve", "version": "1", "description": "docs/serve.md describes the endpoints. With --keys a request needs a key as a bearer token."},
		"security": []any{jsonObject{}, jsonObject{"key": []any{}}},
		"paths":    paths,
		"components": jsonObject{
			"securitySchemes": jsonObject{"key": jsonObject{"type": "http", "scheme": "bearer"}},
			"responses": jsonObject{"Error": jsonObject{"description": "The error, with the field at fault.", "content": jsonObject{"application/json": jsonObject{"schema": jsonObject{
				"type": "object", "properties": jsonObject{"error": jsonObject{"type": "object", "properties": jsonObject{"message": text, "type": text, "param": orNull, "code": orNull}}}}}}}},
		},
	})
}

// describeSchema returns the JSON Schema of the values that a type reads.
func describeSchema(t reflect.Type) jsonObject {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[tokenIDs]():
		return jsonObject{"type": "array", "items": jsonObject{"type": "integer"}}
	case reflect.TypeFor[whole]():
		return jsonObject{"type": "integer"}
	}
	switch t.Kind() {
	case reflect.Struct:
		properties := jsonObject{}
		addProperties(properties, t)
		return jsonObject{"type": "object", "properties": properties}
	case reflect.Map:
		return jsonObject{"type": "object", "additionalProperties": describeSchema(t.Elem())}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 { // json.RawMessage
			return jsonObject{}
		}
		return jsonObject{"type": "array", "items": describeSchema(t.Elem())}
	case reflect.String:
		return jsonObject{"type": "string"}
	case reflect.Bool:
		return jsonObject{"type": "boolean"}
	case reflect.Float64:
		return jsonObject{"type": "number"}
	}
	return jsonObject{"type": "integer"}
}

// addProperties adds the fields of a struct, and those of structs in it without a name.
func addProperties(to jsonObject, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name != "":
			schema := describeSchema(f.Type)
			if text := f.Tag.Get("doc"); text != "" {
				schema["description"] = text
			}
			to[name] = schema
		case f.Anonymous:
			addProperties(to, f.Type)
		}
	}
}

// showAPI answers /openapi.json.
func (s *Server) showAPI(w http.ResponseWriter, _ *http.Request) error {
	text, err := describeAPI()
	if err != nil {
		return err
	}
	return writeData(w, http.StatusOK, jsonType, text)
}
