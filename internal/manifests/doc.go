// Package manifests is the source of Kubernetes objects that people write as files.
//
// LoadFiles reads files once. A Directory reflects a tree of them and follows its edits. It never
// deletes because of a mistake: an object whose manifest became unreadable stays in force in its
// last good version.
package manifests
