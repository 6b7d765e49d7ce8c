"""What the training conversations are about: system prompts, request templates, subjects and follow-ups."""

# fmt: off
SYSTEM_PROMPTS = (
    None,  # the chat template then inserts its own default
    "You are a helpful assistant.",
    "You are a patient teacher. Explain things step by step.",
    "You are an experienced programmer. Answer with short, working examples.",
    "You answer briefly and to the point.",
    "You are a friendly travel guide who loves telling stories.",
    "You are a careful scientist. Say what is known and what is not.",
    "You are an editor who writes clear, simple English.",
)

REQUESTS = (
    "What is {}?",
    "Explain {} to a ten-year-old.",
    "Write a short story about {}.",
    "Give me five facts about {}.",
    "Why is {} important?",
    "What are the advantages and disadvantages of {}?",
    "Write a paragraph about the history of {}.",
    "How does {} affect our daily lives?",
    "List the main steps to learn about {}.",
    "Compare {} with something similar.",
    "Write a polite email asking for information about {}.",
    "Summarize what you know about {} in three sentences.",
    "What questions should I ask an expert on {}?",
    "Write a poem about {}.",
    "Describe a common misunderstanding about {}.",
    "Make a plan for a one-hour lesson about {}.",
    "What would happen to the world without {}?",
    "Give an example of {} and explain it.",
    "Write a dialogue between two friends about {}.",
    "How can a beginner get started with {}?",
)

SUBJECTS = (
    "the water cycle", "photosynthesis", "gravity", "the printing press", "bread baking", "chess", "bicycles", "volcanoes",
    "the Roman Empire", "public libraries", "honey bees", "sleep", "the stock market", "solar panels", "recycling",
    "the violin", "tides", "vaccines", "electric cars", "prime numbers", "fractions", "the alphabet", "maps", "coral reefs",
    "the human heart", "cooking rice", "gardening", "the moon", "glaciers", "rivers", "sorting a list", "recursion",
    "databases", "the internet", "Python functions", "unit tests", "version control", "search engines", "encryption",
    "probability", "triangles", "percentages", "saving money", "writing a resume", "job interviews", "public speaking",
    "time management", "learning a language", "running", "yoga", "healthy breakfasts", "tea", "coffee", "olive oil",
    "ancient Egypt", "the Silk Road", "the French Revolution", "democracy", "trade", "bridges", "skyscrapers", "trains",
    "airplanes", "sailing", "whales", "wolves", "penguins", "forests", "deserts", "earthquakes", "thunderstorms", "climate",
    "atoms", "magnets", "light", "sound", "batteries", "robots", "telescopes", "the periodic table", "DNA", "evolution",
    "dinosaurs", "fossils", "painting", "photography", "poetry", "theatre", "jazz", "folk tales", "mythology", "philosophy",
    "kindness", "friendship", "curiosity", "teamwork", "city parks", "public transport", "school lunches", "board games",
    "puzzles", "summer camps", "lighthouses", "clocks", "paper", "glass", "cotton", "salt", "spices", "markets", "museums",
    "space travel", "the ocean floor", "mountain climbing", "soil", "seeds", "birds", "butterflies", "rainbows", "snow",
)

FOLLOW_UPS = (
    "Can you say that more simply?",
    "Give me an example.",
    "Why is that?",
    "Can you make it shorter?",
    "What should I do next?",
    "Tell me more about the first point.",
    "Thank you. What else should I know?",
    "Could you turn that into a list?",
)

NAMES = (
    "Alice", "Omar", "Lena", "Paul", "Mei", "Diego", "Fatima", "George", "Hannah", "Ivan", "Julia", "Kofi", "Laura",
    "Marco", "Nina", "Oscar", "Petra", "Quentin", "Rosa", "Sam", "Tara", "Umar", "Vera", "Walter", "Yuki", "Zoe",
    "Emma", "Noah", "Liam", "Sofia", "David", "Sarah",
)

PLACES = (
    "Lisbon", "Nairobi", "Kyoto", "Chicago", "Oslo", "the village", "the harbour", "Cairo", "Lima", "Sydney", "Berlin",
    "Naples", "Mumbai", "the old mill", "the lake", "Toronto", "Athens", "Seoul", "the beach", "Dublin", "Prague",
    "Vienna", "the farm", "Boston", "New York",
)

JOBS = (
    "nurse", "carpenter", "teacher", "pilot", "baker", "farmer", "lawyer", "librarian", "chemist", "painter",
    "journalist", "plumber", "data scientist", "waiter", "engineer", "translator", "gardener", "police officer",
    "dentist", "photographer", "software developer",
)

THINGS = (
    "apples", "books", "pencils", "keys", "marbles", "shirts", "tickets", "coins", "eggs", "chairs", "candles",
    "stamps", "lemons", "cups", "bottles", "cards", "toys", "shoes", "oranges", "stickers", "plants", "bags", "cookies",
    "lamps", "blankets",
)

LANGUAGES = (
    "JavaScript", "Java", "C", "C++", "Rust", "Go", "SQL", "Bash", "TypeScript", "R", "Ruby", "HTML and CSS",
)

CODE_TASKS = (
    "reverses a string", "counts the vowels in a text", "checks whether a number is prime", "sorts a list of names",
    "computes a factorial", "finds the largest number in a list", "removes duplicates from a list",
    "reads a CSV file and prints the first row", "merges two sorted lists", "converts Celsius to Fahrenheit",
    "checks whether a word is a palindrome", "prints the Fibonacci numbers", "sums the digits of a number",
    "counts how often each word occurs in a file", "finds the second smallest element", "draws a triangle of stars",
    "implements a stack", "implements binary search", "validates an email address", "generates a random password",
    "downloads a web page", "parses a date", "computes the greatest common divisor", "rotates a list by n places",
    "flattens a nested list", "transposes a matrix", "reads a JSON file", "writes a log message with a timestamp",
    "splits a sentence into words", "implements a queue with two stacks", "finds all files in a folder",
    "converts a number to binary", "computes the median of a list", "implements a bank account class",
    "plays rock, paper, scissors", "selects the ten newest orders", "counts users by country",
    "joins customers with their orders", "shows a button that changes color", "removes spaces at the end of each line",
    "finds the longest word", "checks whether two words are anagrams", "inverts a dictionary",
    "computes the distance between two points", "simulates a dice roll", "counts down from ten",
    "finds the common elements of two lists", "implements a linked list", "caches the results of a slow function",
    "retries a request three times", "formats a phone number",
)

SNIPPETS = (
    "def f(n):\n    if n <= 1:\n        return n\n    return f(n - 1) + f(n - 2)",
    "result = []\nfor i in range(10):\n    if i % 2 == 0:\n        result.append(i * i)\nprint(result)",
    "def find(items, x):\n    for i in range(1, len(items)):\n        if items[i] == x:\n      "
    "      return i\n    return -1",
    "for (let i = 0; i <= list.length; i++) {\n  console.log(list[i].name);\n}",
    "SELECT name, COUNT(*) FROM orders GROUP BY name HAVING COUNT(*) > 5;",
    "class Dog:\n    def __init__(self, name):\n        self.name = name\n    def "
    "bark(self):\n        print(self.name + ' says woof')",
    "with open('data.txt') as f:\n    lines = f.readlines()\nprint(len(lines))",
    "int sum(int *a, int n) {\n    int s = 0;\n    for (int i = 0; i < n; i++) s += a[i];\n    return s;\n}",
    "x = input('Number: ')\nif x > 10:\n    print('big')\nelse:\n    print('small')",
    "def bubble(a):\n    for i in range(len(a)):\n        for j in range(len(a) - 1):\n        "
    "    if a[j] > a[j + 1]:\n                a[j], a[j + 1] = a[j + 1], a[j]\n    return a",
    "words = text.split()\ncounts = {}\nfor w in words:\n    counts[w] = counts.get(w, 0) + 1",
    "import random\nsecret = random.randint(1, 100)\nguess = 0\nwhile guess != secret:\n    "
    "guess = int(input('Guess: '))",
    "const double = xs => xs.map(x => x * 2);\nconsole.log(double([1, 2, 3]));",
    "def add(item, basket=[]):\n    basket.append(item)\n    return basket",
    "try:\n    value = int(text)\nexcept ValueError:\n    value = 0",
    "for file in *.txt; do\n  mv \"$file\" \"${file%.txt}.md\"\ndone",
    "def is_leap(year):\n    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)",
    "matrix = [[1, 2], [3, 4]]\nprint([[row[i] for row in matrix] for i in range(2)])",
)

PASSAGES = (
    "{name} works as a {job} in {place}. In {year} {name} opened a small shop with {b} "
    "employees, and today it sells {a} {thing} a day.",
    "On {day} {name} and {other} will meet at {place} to talk about {subject}. The meeting "
    "starts at {b} o'clock and lasts {a} minutes.",
    "The museum in {place} was built in {year}. It shows {a} objects from {b} countries, most "
    "of them about {subject}. Tickets cost {b} dollars.",
    "Dear {name}, thank you for your order of {a} {thing}. We will send them to {place} on "
    "{day}. Please pay within {b} days. Best wishes, {other}",
    "{name} woke up late, missed the train to {place} and met {other}, a {job} who was "
    "carrying {b} {thing}. They had coffee and spoke about {subject}.",
    "A study from {year} asked {a} people about {subject}. Most of them had learned about it "
    "at school, and {b} had never heard of it.",
    "The town council of {place} decided on {day} to spend {a} million on {subject}. {name}, a "
    "{job}, called it a mistake; {other} was pleased.",
    "Heavy rain is expected in {place} on {day}. Schools close at {b} o'clock. {name}, who "
    "works as a {job} there, asks everybody to stay inside.",
    "{other} is {a} years old and has been a {job} since {year}. She collects {thing}, speaks "
    "{b} languages and lives near {place} with her brother {name}.",
    "Our club for {subject} has {a} members. We meet every {day} in {place}. Bring {b} {thing} "
    "and a friend. For questions call {name}.",
    "The ship left {place} in {year} with {a} passengers. After {b} weeks it reached the "
    "coast. A {job} named {name} wrote a diary about the journey.",
    "Prices of {thing} rose by {a} percent in {place}. {name}, a {job}, says that the last "
    "harvest was poor and that {b} of the shops have closed.",
)

SENTENCES = (
    "give me the report now, I need it.", "He don't know nothing about the plan.",
    "The meeting was long and it was boring and nobody said anything new.",
    "I am writing to inform you that your request has been received and will be dealt with.",
    "She go to school every day by the bus.", "The food was bad and the waiter was rude.",
    "We was happy because the sun shine.", "Due to the fact that it was raining, we made the decision to stay home.",
    "You never listen to me.", "The cat sat on the mat and looked at the bird.",
    "I can't come to your party because I don't want to.",
    "The results of the experiment was not what we expected them to be.", "Send money soon.",
    "Their going to there house over they're.",
    "It is important to note that regular exercise can be of great benefit to one's health.",
    "My boss said that I must to work on Sunday.",
    "The old house at the end of the street has been empty for many years.",
    "Learning new things takes time and patience.", "I think maybe we could possibly try to start a little earlier.",
    "The computer is slow. It is old. It is noisy. I want a new one.",
)

FOREIGN = (
    "Qu'est-ce que la photosynthèse ?", "Écris une courte histoire sur un chat qui voyage.",
    "Comment faire du pain à la maison ?", "Donne-moi trois conseils pour bien dormir.",
    "Quelle est la capitale de l'Espagne, et que peut-on y visiter ?", "Explique la gravité à un enfant.",
    "Traduis en anglais : « Je voudrais réserver une table pour deux personnes. »", "Pourquoi le ciel est-il bleu ?",
    "¿Qué es el ciclo del agua?", "Escribe un poema corto sobre el mar.",
    "Dame una receta sencilla con arroz y tomate.", "¿Cómo puedo aprender inglés más rápido?",
    "Explica qué es una base de datos.", "¿Cuáles son los planetas del sistema solar?",
    "Traduce al inglés: «Mañana vamos a visitar a mis abuelos.»", "Escribe una carta a un amigo que vive lejos.",
    "Was ist ein Vulkan?", "Schreibe eine kurze Geschichte über einen Hund.", "Wie lerne ich am besten Vokabeln?",
    "Erkläre den Unterschied zwischen Wetter und Klima.", "Nenne fünf Städte in Deutschland und beschreibe sie kurz.",
    "Übersetze ins Englische: „Das Buch liegt auf dem Tisch.“", "Wie kocht man Reis?", "Che cos'è la democrazia?",
    "Scrivi una breve lettera di ringraziamento.", "Come si prepara un buon caffè?", "Quali sono i mesi dell'anno?",
    "O que é a inteligência artificial?", "Escreva três frases sobre o Brasil.", "Wat is een fiets?",
    "Skriv en kort dikt om vintern.", "Comment dit-on « merci » en cinq langues ?",
    "Raconte l'histoire de la tour Eiffel.", "¿Por qué es importante dormir bien?", "Warum ist Wasser nass?",
)
