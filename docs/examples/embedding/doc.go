// Package embedding has three examples of agents that embed the policy plugin. They use nothing
// that another module could not use. docs/guide/embedding.md explains them, and tests/system/embedding
// runs them.
package embedding
