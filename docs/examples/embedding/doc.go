// Package embedding shows three agents that are not Sluice's and embed its policy plugin.
// They use nothing that another module could not use. docs/guide/embedding.md explains
// them, and tests/embedding runs them.
package embedding
