// Package openai tests farfield serve with OpenAI's client in Go.
package openai
