/* A server that answers frames of Kafka's protocol without reading them, as echo_server.py does: its processor time is
 * that of the kernel.  Takes the path of a file that each frame is written to, and prints its port.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 128, RESPONSE = 4 + 0x34, FRAMES_MAX = 256 };

static char buffer[1 << 16];
static char responses[RESPONSE * FRAMES_MAX];

static void answer(int sock, int file) {
    ssize_t received = recv(sock, buffer, sizeof buffer, 0);
    if (received < 4) {
        close(sock);
        return;
    }
    uint32_t size;
    memcpy(&size, buffer, sizeof size);
    size_t frames = (size_t)received / (4 + ntohl(size));
    if (frames > FRAMES_MAX)
        frames = FRAMES_MAX;
    if (write(file, buffer, (size_t)received) < 0 || send(sock, responses, frames * RESPONSE, 0) < 0)
        close(sock);
}

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    for (int index = 0; index < FRAMES_MAX; index++)
        responses[index * RESPONSE + 3] = 0x34;
    int file = open(arguments[1], O_WRONLY | O_CREAT | O_APPEND, 0600);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    if (file < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 128) < 0)
        return 1;
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    int poll = epoll_create1(0);
    struct epoll_event events[EVENTS], event = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int ready = epoll_wait(poll, events, EVENTS, -1);
        for (int index = 0; index < ready; index++) {
            if (events[index].data.fd != listener) {
                answer(events[index].data.fd, file);
                continue;
            }
            int one = 1, sock = accept(listener, NULL, NULL);
            setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            event.data.fd = sock;
            epoll_ctl(poll, EPOLL_CTL_ADD, sock, &event);
        }
    }
}
