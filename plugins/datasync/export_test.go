package datasync

// CheckFile says what is wrong with a file.
func CheckFile(path, prefix string) error {
	_, _, err := loadFile(path, prefix)
	return err
}
