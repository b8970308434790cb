package odl_test

import "fmt"

func podName(i int) string { return fmt.Sprintf("pod-%d", i) }
