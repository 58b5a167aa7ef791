// Package chat renders the chat templates of published models: a bounded subset of Jinja.
package chat

// Template is a chat template.
type Template struct{}
