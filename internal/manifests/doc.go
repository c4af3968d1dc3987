// Package manifests reads Kubernetes objects from files and directories, and watches these for
// changes.
//
// LoadFiles reads files once. A Directory reflects a tree of them and follows its edits. It never
// deletes because of a mistake: an object whose manifest became unreadable stays in force in its
// last good version.
package manifests
