/* Prints, for each state and time that it reads, whether the program tracks the connection. */
#include <stdio.h>

#include "classifier.h"

int main(void)
{
	unsigned long long state;
	unsigned now;
	while (scanf("%llu %u", &state, &now) == 2)
		printf("%d\n", is_alive(state, now));
	return 0;
}
