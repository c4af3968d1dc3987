// Package embedding tests the agents of docs/examples/embedding, and checks that
// docs/guide/embedding.md shows the code that runs.
package embedding
